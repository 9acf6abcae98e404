"""Closed tables of general knowledge. The phrasing is held out, never the fact."""

from __future__ import annotations

from random import Random

from tests.ember import tables
from tests.ember.exchange import Exchange, phrase, sentence

ASK = (
    "(||||please tell me: |tell me, |quick question: |do you know |hey, |I forgot: |can you tell"
    " me )"
)


def _article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def capital(rng: Random) -> Exchange:
    """Capitals, both ways."""
    country, city = rng.choice(list(tables.CAPITALS.items()))
    if rng.random() < 0.75:
        question = phrase(
            rng,
            ASK
            + "(what is|what's|which city is|name|tell me) (the capital of {c}|{c}'s capital|the"
            " capital city of {c}|the capital of {c})(?|)",
            c=country,
        )
        if rng.random() < 0.15:
            question = phrase(
                rng,
                "({c}: what is the capital?|capital of {c}|{c} capital?|of {c}, which city is the"
                " capital?)",
                c=country,
            )
        other, other_city = rng.choice(list(tables.CAPITALS.items()))
        ask = phrase(rng, "(and|and of|what about|and the capital of) {c}?", c=other)
        after = (ask, f"The capital of {other} is {other_city}.", other_city)
        answer = f"The capital of {country} is {city}."
        return Exchange(question, answer, city, question, follow_ups=(after,))
    question = phrase(
        rng,
        ASK + "({v} is the capital of (what|which) country?|which country has the capital {v}?|what"
        " country is {v} the capital of?)",
        v=city,
    )
    return Exchange(question, f"{city} is the capital of {country}.", country, question)


def opposite(rng: Random) -> Exchange:
    """Opposites."""
    word, other = rng.choice(list(tables.OPPOSITES.items()))
    if (
        word != "light"
        and rng.random() < 0.5
        and other not in tables.OPPOSITES
        and list(tables.OPPOSITES.values()).count(other) == 1
    ):
        word, other = other, word
    word_shown = rng.choice((word, word, f'"{word}"'))
    question = phrase(
        rng,
        ASK + "(what is|what's|name|give me|which word is) the (opposite|opposite) of {w}?",
        w=word_shown,
    )
    if rng.random() < 0.2:
        question = phrase(
            rng,
            "(what word means the opposite of {w}?|{w} - what is the opposite?|opposite of {w})",
            w=word_shown,
        )
    return Exchange(question, f"The opposite of {word} is {other}.", other, question)


def color(rng: Random) -> Exchange:
    """Colours of things and mixed colours."""
    if rng.random() < 0.3:
        mix, result = rng.choice(list(tables.COLOR_MIXES.items()))
        first, second = mix.split(" and ")
        if rng.random() < 0.5:
            first, second = second, first
        question = phrase(
            rng,
            ASK + "(what (color|colour) do {a} and {b} make?|what do you get if you mix {a} and"
            " {b}?|mix {a} and {b}, what color is it?)",
            a=first,
            b=second,
        )
        return Exchange(question, f"{sentence(mix)} make {result}.", result, question)
    thing, shade = rng.choice(list(tables.THING_COLORS.items()))
    question = phrase(rng, ASK + "(what|which) (color|colour) (is|has) {t}?", t=thing)
    return Exchange(question, f"{sentence(thing)} is {shade}.", shade, question)


def grammar(rng: Random) -> Exchange:
    """Plurals and past tenses."""
    if rng.random() < 0.5:
        one, many = rng.choice(list(tables.PLURALS.items()))
        shown = rng.choice((one, one, f'"{one}"'))
        question = phrase(
            rng, ASK + "(what is|what's|give me|tell me) the plural (of|of|form of) {w}?", w=shown
        )
        if rng.random() < 0.25:
            question = phrase(
                rng,
                "(one {w}, two what?|{w}: what is the plural?|more than one {w} is called what?|how"
                " do you write the plural of {w}?)",
                w=shown,
            )
        return Exchange(question, f"The plural of {one} is {many}.", many, question)
    now, past = rng.choice(list(tables.PAST_TENSES.items()))
    shown = rng.choice((now, now, f'"{now}"'))
    question = phrase(
        rng,
        ASK + "(what is|what's|give me|tell me) the past (tense|form|tense form) of {w}?",
        w=shown,
    )
    return Exchange(question, f"The past tense of {now} is {past}.", past, question)


def animal(rng: Random) -> Exchange:
    """Sounds, young, homes and legs of animals."""
    kind = rng.randrange(4)
    if kind == 0:
        name, sound = rng.choice(list(tables.ANIMAL_SOUNDS.items()))
        question = phrase(
            rng,
            ASK
            + "(what sound does {a} make?|what does {a} (say|do)?|which sound does {a} make?|how"
            " does {a} sound?|what noise does {a} make?)",
            a=_article(name),
        )
        return Exchange(question, f"{sentence(_article(name))} {sound}.", sound, question)
    if kind == 1:
        name, young = rng.choice(list(tables.ANIMAL_YOUNG.items()))
        question = phrase(
            rng,
            ASK
            + "(what is|what's) (a baby {b}|a young {b}|the young of {a}|the baby of {a}) called?",
            a=_article(name),
            b=name,
        )
        if rng.random() < 0.2:
            question = phrase(rng, "(how do you call|what do you call) a (baby|young) {b}?", b=name)
        return Exchange(question, f"A young {name} is called a {young}.", young, question)
    if kind == 2:
        name, home = rng.choice(list(tables.ANIMAL_HOMES.items()))
        question = phrase(rng, ASK + "where does {a} (live|sleep)?", a=_article(name))
        if rng.random() < 0.4:
            question = phrase(
                rng,
                "(what is the home of {a}|what is the home of {a} called|in what does {a} live)?",
                a=_article(name),
            )
        place = "in water" if home == "water" else f"in {_article(home)}"
        return Exchange(question, f"{sentence(_article(name))} lives {place}.", home, question)
    name, legs = rng.choice(list(tables.ANIMAL_LEGS.items()))
    question = phrase(rng, ASK + "how many legs does {a} have?", a=_article(name))
    if rng.random() < 0.4:
        question = phrase(
            rng,
            "(how many legs has {a}|what number of legs does {a} have|{a} has how many legs)?",
            a=_article(name),
        )
    return Exchange(
        question, f"{sentence(_article(name))} has {legs} legs.", f"{legs} legs", question
    )


def shape(rng: Random) -> Exchange:
    """Sides of shapes, both ways."""
    name, sides = rng.choice(list(tables.SHAPE_SIDES.items()))
    question = phrase(rng, ASK + "how many (sides|corners) does {s} have?", s=_article(name))
    if rng.random() < 0.4:
        question = phrase(
            rng,
            ASK + "(how many (sides|corners) has {s}|how many sides are there in {s}|what number of"
            " sides does {s} have)?",
            s=_article(name),
        )
    part = "corners" if "corners" in question else "sides"
    return Exchange(
        question, f"{sentence(_article(name))} has {sides} {part}.", sides, question, "number"
    )


def chemistry(rng: Random) -> Exchange:
    """Element symbols, formulas and states of matter."""
    kind = rng.choice((0, 0, 1, 2, 3))
    if kind == 0:
        element, symbol = rng.choice(list(tables.SYMBOLS.items()))
        question = phrase(
            rng,
            ASK
            + "(what is|what's|give me) the (chemical symbol|symbol|element symbol) (of|for) {e}?",
            e=element,
        )
        return Exchange(question, f"The symbol of {element} is {symbol}.", symbol, question)
    if kind == 1:
        element, symbol = rng.choice(list(tables.SYMBOLS.items()))
        question = phrase(
            rng,
            ASK
            + "(which|what) (chemical element|element) (has the symbol|is|has the chemical symbol)"
            " {s}?",
            s=symbol,
        )
        return Exchange(question, f"{symbol} is the symbol of {element}.", element, question)
    if kind == 2:
        thing, formula = rng.choice(list(tables.FORMULAS.items()))
        question = phrase(
            rng, ASK + "(what is|what's) the (chemical formula|formula) (of|for) {t}?", t=thing
        )
        return Exchange(question, f"The formula of {thing} is {formula}.", formula, question)
    thing, state = rng.choice(list(tables.STATES.items()))
    question = phrase(
        rng,
        ASK + "is {t} (a solid, a liquid or a gas|solid, liquid or gas|a solid, liquid or gas)?",
        t=thing,
    )
    return Exchange(question, f"{sentence(thing)} is a {state}.", state, question)


def planet(rng: Random) -> Exchange:
    """Order of the planets."""
    index = rng.randrange(8)
    name = tables.PLANETS[index]
    kind = rng.randrange(4)
    if kind == 0:
        question = phrase(
            rng, ASK + "(what|which) is the {o} planet( from the sun||)?", o=tables.ORDINALS[index]
        )
        return Exchange(question, f"The {tables.ORDINALS[index]} planet is {name}.", name, question)
    if kind == 1:
        question = phrase(
            rng,
            ASK + "(list|name|what are|which are) (all |)the (planets|eight planets|planets of the"
            " solar system|planets in order)",
        )
        return Exchange(
            question, ", ".join(tables.PLANETS) + ".", ", ".join(tables.PLANETS), question
        )
    word = "after" if kind == 2 else "before"
    other = index + (1 if kind == 2 else -1)
    if not 0 <= other < 8:
        return planet(rng)
    question = phrase(
        rng, ASK + "(what|which) planet (comes|is|comes right|is the one) {w} {p}?", w=word, p=name
    )
    return Exchange(
        question,
        f"The planet {word} {name} is {tables.PLANETS[other]}.",
        tables.PLANETS[other],
        question,
    )


def category(rng: Random) -> Exchange:
    """What kind of thing something is."""
    kind, members = rng.choice(list(tables.CATEGORIES.items()))
    thing = rng.choice(members)
    plural = {"fruit": "fruits", "day": "days"}.get(kind, kind + "s")
    if rng.random() < 0.4:
        chosen = rng.sample(members, 3)
        question = phrase(rng, "(name|list|give me|tell me) three {p}", p=plural)
        del chosen
        return Exchange(
            question,
            f"Three {plural} are {members[0]}, {members[1]} and {members[2]}.",
            f"{members[0]}, {members[1]} and {members[2]}",
            question,
        )
    if rng.random() < 0.5:
        asked = (
            kind
            if rng.random() < 0.5
            else rng.choice([k for k in tables.CATEGORIES if thing not in tables.CATEGORIES[k]])
        )
        question = phrase(rng, ASK + "is {t} {a}?", t=thing, a=_article(asked))
        yes = "Yes" if asked == kind else "No"
        if thing == "orange" or thing in ("Mercury",):
            return category(rng)
        return Exchange(
            question,
            f"{yes}, {thing} is {_article(kind)}.",
            f"{yes}, {thing} is {_article(kind)}",
            question,
        )
    if thing in ("orange", "Mercury"):
        return category(rng)
    question = phrase(rng, ASK + "what (kind|sort|type) of thing is {t}?", t=thing)
    return Exchange(question, f"{sentence(thing)} is {_article(kind)}.", kind, question)


def people(rng: Random) -> Exchange:
    """Jobs and parts of the body."""
    if rng.random() < 0.6:
        does, job = rng.choice(list(tables.JOBS.items()))
        question = phrase(
            rng,
            ASK + "(who {d}?|what is (someone|a person) who {d} called?|what do you call (someone|a"
            " person) who {d}?)",
            d=does,
        )
        return Exchange(question, f"{sentence(_article(job))} {does}.", job, question)
    act, part = rng.choice(list(tables.SENSES.items()))
    question = phrase(
        rng, ASK + "(what|which part of the body) do (we|you|people) {a} with?", a=act
    )
    return Exchange(question, f"We {act} with our {part}.", part, question)


GENERATORS = (
    (capital, 6),
    (opposite, 3),
    (color, 2),
    (grammar, 4),
    (animal, 5),
    (shape, 2),
    (chemistry, 3),
    (planet, 2),
    (category, 3),
    (people, 2),
)
