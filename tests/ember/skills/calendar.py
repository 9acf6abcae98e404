"""Days, months, seasons, clock times and units. Held out by phrasing, or by operands where there
are many.
"""

from __future__ import annotations

from random import Random

from tests.ember.exchange import Exchange, phrase
from tests.ember.tables import (
    DAYS,
    MONTH_LENGTHS,
    MONTH_SEASONS,
    MONTHS,
    ORDINALS,
    SEASONS,
    UNITS,
)

POLITE = (
    "(|||please tell me: |tell me, |quick question: |do you know |hey, |I forgot: |can you tell"
    " me )"
)


def _steps(names: tuple[str, ...], start: int, count: int, after: bool) -> str:
    """The numbered names passed on the way: "1 Tuesday, 2 Wednesday"."""
    sign = 1 if after else -1
    passed = (names[(start + sign * step) % len(names)] for step in range(1, count + 1))
    return ", ".join(f"{number} {name}" for number, name in enumerate(passed, 1))


def day_step(rng: Random) -> Exchange:
    """The day N days after or before a day."""
    day, step = rng.randrange(7), rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 10))
    after = rng.random() < 0.65
    place = (day + (step if after else -step)) % 7
    value, later = DAYS[place], DAYS[(place + 1) % 7]
    word = "after" if after else "before"
    ask = rng.choice(("and the day after that?", "and the next day?", "and after that?"))
    follow = ((ask, f"The day after {value} is {later}.", later),)
    if step == 1:
        question = phrase(
            rng, POLITE + "(what|which) day (comes|is|comes right) {w} {d}?", w=word, d=DAYS[day]
        )
        if rng.random() < 0.2:
            question = phrase(
                rng,
                "(today is|if today is|it is) {d}(. W|, w)hat day (is|will be|was) {t}?",
                d=DAYS[day],
                t="tomorrow" if after else "yesterday",
            )
        answer = f"The day {word} {DAYS[day]} is {value}."
        return Exchange(question, answer, value, question, follow_ups=follow)
    question = phrase(
        rng,
        POLITE + "(what|which) day (is|comes|is it) {n} days {w} {d}?",
        n=step,
        w=word,
        d=DAYS[day],
    )
    answer = f"{_steps(DAYS, day, step, after)}: {step} days {word} {DAYS[day]} is {value}."
    return Exchange(question, answer, value, question, "ending", worked=True, follow_ups=follow)


def month_step(rng: Random) -> Exchange:
    """The month N months after or before a month."""
    month, step = rng.randrange(12), rng.choice((1, 1, 1, 2, 3, 4, 6))
    after = rng.random() < 0.65
    value = MONTHS[(month + (step if after else -step)) % 12]
    word = "after" if after else "before"
    if step == 1:
        question = phrase(
            rng,
            POLITE + "(what|which) month (comes|is|comes right|follows) {w} {m}?",
            w=word,
            m=MONTHS[month],
        ).replace(f"follows {word}", f"comes {word}")
        return Exchange(question, f"The month {word} {MONTHS[month]} is {value}.", value, question)
    question = phrase(
        rng,
        POLITE + "(what|which) month (is|comes) {n} months {w} {m}?",
        n=step,
        w=word,
        m=MONTHS[month],
    )
    passed = _steps(MONTHS, month, step, after)
    answer = f"{passed}: {step} months {word} {MONTHS[month]} is {value}."
    return Exchange(question, answer, value, question, "ending", worked=True)


def month_fact(rng: Random) -> Exchange:
    """Days in a month, its number, its season."""
    index = rng.randrange(12)
    month = MONTHS[index]
    kind = rng.randrange(4)
    if kind == 0:
        question = phrase(
            rng,
            POLITE + "how many days (does {m} have|are in {m}|has {m}|are there in {m})?",
            m=month,
        )
        return Exchange(
            question,
            f"{month} has {MONTH_LENGTHS[index]} days.",
            str(MONTH_LENGTHS[index]),
            question,
            "number",
        )
    if kind == 1:
        question = phrase(rng, POLITE + "(what|which) number is {m}?", m=month)
        if rng.random() < 0.6:
            question = phrase(
                rng,
                POLITE
                + "(what is|which is) the (month number|number of the month|number) (of |of |)(the"
                " month |){m}?",
                m=month,
            )
        return Exchange(
            question, f"{month} is month number {index + 1}.", str(index + 1), question, "number"
        )
    if kind == 2:
        question = phrase(
            rng,
            POLITE
            + "(which|what) (is month number {n}|month is number {n}|is the {o} month|is the {o}"
            " month of the year)?",
            n=index + 1,
            o=ORDINALS[index],
        )
        return Exchange(question, f"Month number {index + 1} is {month}.", month, question)
    question = phrase(
        rng, POLITE + "(which|what) season is (it in |in |){m}( in|)?", m=month
    ).replace("in " + month + " in", month + " in")
    return Exchange(
        question, f"{month} is in {MONTH_SEASONS[index]}.", MONTH_SEASONS[index], question
    )


def season_step(rng: Random) -> Exchange:
    """What season comes next, or came before."""
    index = rng.randrange(4)
    after = rng.random() < 0.6
    word = "after" if after else "before"
    value = SEASONS[(index + (1 if after else -1)) % 4]
    question = phrase(
        rng,
        POLITE + "(what|which) season (comes|is|comes right) {w} {s}?",
        w=word,
        s=SEASONS[index],
    )
    return Exchange(question, f"The season {word} {SEASONS[index]} is {value}.", value, question)


def listing(rng: Random) -> Exchange:
    """All days, months or seasons; the n-th day; weekend days."""
    kind = rng.randrange(5)
    if kind == 0:
        question = phrase(
            rng,
            POLITE
            + "(list|name|what are|which are) (all |)the (days of the week|seven days|seven days of"
            " the week|weekdays in order)",
        )
        return Exchange(question, ", ".join(DAYS) + ".", ", ".join(DAYS), question)
    if kind == 1:
        question = phrase(
            rng,
            POLITE + "(list|name|what are|which are) (all |)the (months|twelve months|months of the"
            " year|months in order)",
        )
        return Exchange(question, ", ".join(MONTHS) + ".", ", ".join(MONTHS), question)
    if kind == 2:
        question = phrase(
            rng,
            POLITE
            + "(list|name|what are|which are) (all |)the (seasons|four seasons|seasons of the"
            " year)",
        )
        return Exchange(
            question, ", ".join(SEASONS).capitalize() + ".", ", ".join(SEASONS), question
        )
    if kind == 3:
        index = rng.randrange(7)
        question = phrase(
            rng, POLITE + "(what|which) is the {o} day of the week?", o=ORDINALS[index]
        )
        return Exchange(
            question,
            f"The {ORDINALS[index]} day of the week is {DAYS[index]}.",
            DAYS[index],
            question,
        )
    index = rng.randrange(7)
    day, weekend = DAYS[index], index >= 5
    question = phrase(
        rng,
        POLITE + "is {d} (a weekday or (at|on) the weekend|on the weekend|a weekend day|part of the"
        " weekend)?",
        d=day,
    )
    if " or " in question:
        return Exchange(
            question,
            f"{day} is {'on the weekend' if weekend else 'a weekday'}.",
            "weekend" if weekend else "a weekday",
            question,
        )
    yes = "Yes" if weekend else "No"
    return Exchange(
        question, f"{yes}, {day} is {'on the weekend' if weekend else 'a weekday'}.", yes, question
    )


def unit(rng: Random) -> Exchange:
    """How many of a small unit make a large one."""
    small, large, count = rng.choice(UNITS)
    question = phrase(
        rng,
        POLITE + "how many {s} (are in|are there in|does|has|make|make up) {l}",
        s=small,
        l=large,
    )
    if " does " in question:
        question += " have"
    question += rng.choice(("?", "?", ""))
    return Exchange(
        question,
        f"{large[:1].upper()}{large[1:]} has {count} {small}.",
        str(count),
        question,
        "number",
    )


def _hour(hour: int) -> str:
    """The hour of the day, counted from midnight, as "3 pm"."""
    return f"{(hour - 1) % 12 + 1} {'pm' if hour % 24 >= 12 else 'am'}"


def clock(rng: Random) -> Exchange:
    """The time some hours later, and hours from minutes. Held out by operands."""
    hour, step = rng.randint(1, 12), rng.randint(1, 6)
    half = rng.choice(("am", "pm"))
    if rng.random() < 0.5:
        passed = [_hour(hour % 12 + 12 * (half == "pm") + later) for later in range(1, step + 1)]
        hours = "hour" if step == 1 else "hours"
        question = phrase(
            rng,
            "(what time is it|what is the time|which time is it|what will the time be) {n} {u}"
            " after {h} {s}?",
            n=step,
            u=hours,
            h=hour,
            s=half,
        )
        return Exchange(
            question,
            f"{', '.join(passed)}: {step} {hours} after {hour} {half} is {passed[-1]}.",
            passed[-1],
            f"clock {step} {hour} {half}",
            "ending",
            worked=True,
        )
    count = rng.randint(2, 12)
    small, large, factor = rng.choice(
        (
            ("minutes", "hours", 60),
            ("seconds", "minutes", 60),
            ("days", "weeks", 7),
            ("months", "years", 12),
            ("hours", "days", 24),
        )
    )
    question = phrase(
        rng, "how many {s} (are in|are|are there in|make) {n} {l}?", s=small, n=count, l=large
    )
    return Exchange(
        question,
        f"{count} {large} are {count * factor} {small}.",
        str(count * factor),
        question,
        "number",
    )


GENERATORS = (
    (day_step, 4),
    (month_step, 4),
    (month_fact, 4),
    (season_step, 1),
    (listing, 3),
    (unit, 4),
    (clock, 3),
)
