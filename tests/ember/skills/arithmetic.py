"""Small sums, products, divisions and questions about single numbers. Held out by operands."""

from __future__ import annotations

from random import Random

from tests.ember.exchange import Exchange, phrase
from tests.ember.notation import words

TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL = words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen"""
)

ASK = (
    "(what is|what's|what is|calculate|compute|how much is|work out|solve|tell me|give me|can you"
    " calculate|)"
)
END = "(|?|?| =| = ?)"


def in_words(number: int) -> str:
    """`number` below one hundred in English."""
    if number < 20:
        return SMALL[number]
    tens, ones = divmod(number, 10)
    return TENS[tens] + (f"-{SMALL[ones]}" if ones else "")


def _operand(rng: Random) -> int:
    draw = rng.random()
    if draw < 0.3:
        return rng.randint(0, 12)
    return rng.randint(10, 99) if draw < 0.8 else rng.randint(100, 999)


def _shown(rng: Random, number: int) -> str:
    return in_words(number) if number < 100 and rng.random() < 0.15 else str(number)


def _digits(number: int, count: int) -> list[int]:
    """The last `count` digits, ones first."""
    return [number // 10**place % 10 for place in range(count)]


def sum_answer(a: int, b: int) -> str:
    """a + b with the sums of the columns first, as on paper: a small model adds digits, not
    numbers.
    """
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    steps, carry = [], 0
    width = len(str(max(a, b)))
    for x, y in zip(_digits(a, width), _digits(b, width), strict=True):
        steps.append(f"{x}+{y}{'+1' if carry else ''}={x + y + carry}")
        carry = (x + y + carry) // 10
    return f"{', '.join(steps)}: {a} + {b} = {a + b}."


def difference_answer(a: int, b: int) -> str:
    """a - b with the differences of the columns first; a borrowed ten is written in front of the
    digit.
    """
    if a < 10:
        return f"{a} - {b} = {a - b}."
    steps, borrowed = [], 0
    width = len(str(a))
    for x, y in zip(_digits(a, width), _digits(b, width), strict=True):
        short = x - borrowed < y
        steps.append(
            f"{'1' if short else ''}{x}{'-1' if borrowed else ''}-{y}"
            f"={x - borrowed - y + 10 * short}"
        )
        borrowed = int(short)
    return f"{', '.join(steps)}: {a} - {b} = {a - b}."


def _key(operation: str, a: int, b: int, question: str) -> str:
    """What is held out: the operands, or the phrasing where the table is closed (19 and 9)."""
    return question if a < 20 and b < 10 else f"{operation} {a} {b}"


def addition(rng: Random) -> Exchange:
    """a + b, up to three digits."""
    a, b = _operand(rng), _operand(rng)
    form = rng.choice(
        (
            f"{ASK} {{a}} (+|+|plus|plus|and) {{b}}{END}",
            "(add|please add|can you add) {a} (and|to) {b}",
            "{a}+{b}{e}",
            "(what is |what's |)the sum of {a} and {b}?",
            "{a} (plus|and) {b} (is|makes|equals) (what|how much)?",
            "(if|) I have {a} {n} and get {b} more(, how many do I have|. How many do I have)?",
        )
    )
    question = phrase(
        rng,
        form,
        a=_shown(rng, a),
        b=_shown(rng, b),
        e=rng.choice(("", "=", "?")),
        n=rng.choice(("apples", "coins", "books")),
    )
    total = str(a + b)
    more = rng.randint(1, 9)
    follow = phrase(rng, "(and|now|then) (plus|add) {m}?", m=more)
    after = (follow, sum_answer(a + b, more), str(a + b + more))
    return Exchange(
        question,
        sum_answer(a, b),
        total,
        _key("add", a, b, question),
        "number",
        worked=True,
        follow_ups=(after,),
    )


def subtraction(rng: Random) -> Exchange:
    """a - b with a result of zero or more."""
    a, b = sorted((_operand(rng), _operand(rng)), reverse=True)
    form = rng.choice(
        (
            f"{ASK} {{a}} (-|-|minus|minus|take away|less) {{b}}{END}",
            "subtract {b} from {a}",
            "{a}-{b}{e}",
            "take {b} (away|) from {a}",
            "(what is |what's |)the difference (between|of) {a} and {b}?",
            "(if|) I have {a} {n} and give away {b}(, how many are left|. How many are left)?",
        )
    )
    question = phrase(
        rng,
        form,
        a=_shown(rng, a),
        b=_shown(rng, b),
        e=rng.choice(("", "=", "?")),
        n=rng.choice(("apples", "coins", "books")),
    )
    rest = str(a - b)
    more = rng.randint(1, 9)
    follow = phrase(rng, "(and|now|then) (plus|add) {m}?", m=more)
    after = (follow, sum_answer(a - b, more), str(a - b + more))
    return Exchange(
        question,
        difference_answer(a, b),
        rest,
        _key("subtract", a, b, question),
        "number",
        worked=True,
        follow_ups=(after,),
    )


def product(rng: Random) -> Exchange:
    """The times table to 12: a closed table, so the phrasing is held out."""
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    form = rng.choice(
        (
            f"{ASK} {{a}} (times|x|*|multiplied by|×) {{b}}{END}",
            "multiply {a} (by|and|with) {b}",
            "{a}*{b}{e}",
            "{a}x{b}{e}",
            "(what is |what's |)the product of {a} and {b}?",
            "how much are {a} times {b}?",
            "{a} (bags|boxes) with {b} (apples|eggs) each, how many in all?",
        )
    )
    question = phrase(rng, form, a=_shown(rng, a), b=_shown(rng, b), e=rng.choice(("", "=", "?")))
    return Exchange(question, f"{a} x {b} = {a * b}.", str(a * b), question, "number")


def division(rng: Random) -> Exchange:
    """Exact division inside the times table; the phrasing is held out."""
    b, result = rng.randint(1, 12), rng.randint(1, 12)
    a = b * result
    form = rng.choice(
        (
            f"{ASK} {{a}} (divided by|/|÷|over) {{b}}{END}",
            "divide {a} by {b}",
            "{a}/{b}{e}",
            "how (often|many times) does {b} go into {a}?",
            (
                "share {a} (sweets|coins) among {b} (children|people)(, how many each|. How many"
                " does each get)?"
            ),
        )
    )
    question = phrase(rng, form, a=_shown(rng, a), b=_shown(rng, b), e=rng.choice(("", "=", "?")))
    return Exchange(question, f"{a} / {b} = {result}.", str(result), question, "number")


def comparison(rng: Random) -> Exchange:
    """The bigger or smaller of two different numbers."""
    a, b = _operand(rng), _operand(rng)
    if a == b:
        b += 1
    larger = rng.random() < 0.5
    word = rng.choice(
        ("bigger", "larger", "greater", "higher", "more")
        if larger
        else ("smaller", "lower", "less")
    )
    value = max(a, b) if larger else min(a, b)
    other = a + b - value
    key = f"compare {word} {a} {b}"
    if rng.random() < 0.3:
        asked, second = (a, b) if rng.random() < 0.5 else (b, a)
        word = "bigger" if larger else "smaller"
        right = asked == value
        question = phrase(rng, "is {x} {w} than {y}?", x=asked, y=second, w=word)
        fact = f"{asked} is {'bigger' if asked > second else 'smaller'} than {second}."
        return Exchange(
            question, f"{'Yes' if right else 'No'}, {fact}", "Yes" if right else "No", key
        )
    question = phrase(
        rng, "(which is|what is|which number is) {w}(,|:) {a} or {b}?", w=word, a=a, b=b
    )
    return Exchange(
        question, f"{value} is {'bigger' if larger else 'smaller'} than {other}.", str(value), key
    )


def parity(rng: Random) -> Exchange:
    """Even or odd."""
    number = rng.randint(0, 99) if rng.random() < 0.6 else rng.randint(100, 9999)
    kind = "odd" if number % 2 else "even"
    if rng.random() < 0.5:
        asked = rng.choice(("odd", "even"))
        question = (
            phrase(rng, "is {n} (an|an) {k} number?", n=number, k=asked)
            if rng.random() < 0.5
            else f"is {number} {asked}?"
        )
        yes = "Yes" if asked == kind else "No"
        return Exchange(
            question,
            f"{yes}, {number} is {kind}.",
            f"{yes}, {number} is {kind}",
            f"parity {number}",
        )
    question = phrase(rng, "is {n} (odd or even|even or odd|an even or an odd number)?", n=number)
    return Exchange(question, f"{number} is {kind}.", kind, f"parity {number}")


def neighbour(rng: Random) -> Exchange:
    """The next or the previous number."""
    number = rng.randint(1, 99) if rng.random() < 0.5 else rng.randint(100, 999)
    if rng.random() < 0.5:
        question = phrase(rng, "(what|which number) comes (after|right after) {n}?", n=number)
        if rng.random() < 0.3:
            question = phrase(
                rng, "(what is|tell me|) the (next number after|number after) {n}", n=number
            )
        return Exchange(
            question,
            f"After {number} comes {number + 1}.",
            str(number + 1),
            f"next {number}",
            "number",
        )
    question = phrase(rng, "(what|which number) comes (before|right before) {n}?", n=number)
    if rng.random() < 0.3:
        question = phrase(
            rng, "(what is|tell me|) the (previous number before|number before) {n}", n=number
        )
    return Exchange(
        question,
        f"Before {number} comes {number - 1}.",
        str(number - 1),
        f"previous {number}",
        "number",
    )


def doubling(rng: Random) -> Exchange:
    """Double or half of a number."""
    number = rng.randint(1, 50) if rng.random() < 0.7 else rng.randint(51, 200)
    if rng.random() < 0.65:
        question = phrase(
            rng, "(what is|what's|tell me|) (double|twice|two times) {n}(?|)", n=number
        )
        if rng.random() < 0.2:
            question = f"double {number}"
        key = f"double {number}"
        return Exchange(
            question, sum_answer(number, number), str(2 * number), key, "number", worked=True
        )
    question = phrase(
        rng, "(what is|what's|tell me|) (half of|half|one half of) {n}(?|)", n=2 * number
    )
    return Exchange(
        question, f"Half of {2 * number} is {number}.", str(number), f"half {2 * number}", "number"
    )


def _small_fact(rng: Random) -> tuple[str, str]:
    """A sum, difference, product or neighbour of small numbers as asked and as answered."""
    kind = rng.randrange(5)
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    if kind == 0:
        return f"{a} + {b}", f"{a} + {b} = {a + b}"
    if kind == 1:
        return f"{a + b} - {b}", f"{a + b} - {b} = {a}"
    if kind == 2:
        a, b = rng.randint(1, 12), rng.randint(1, 12)
        return f"{a * b} / {b}", f"{a * b} / {b} = {a}"
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    return f"{a} x {b}", f"{a} x {b} = {a * b}"


def several(rng: Random) -> Exchange:
    """Several small facts at once; the list is held out."""
    facts = [_small_fact(rng) for _ in range(rng.randint(2, 6))]
    asked = ", ".join(question for question, _ in facts[:-1]) + " and " + facts[-1][0]
    question = phrase(rng, "(what is|what's|calculate|compute|work out|) {f}(|?)", f=asked)
    answer = ", ".join(answer for _, answer in facts)
    return Exchange(question, f"{answer}.", answer, question, worked=True)


GENERATORS = (
    (several, 4),
    (addition, 5),
    (subtraction, 5),
    (product, 3),
    (division, 3),
    (comparison, 2),
    (parity, 2),
    (neighbour, 2),
    (doubling, 2),
)
