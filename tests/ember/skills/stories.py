"""Short stories from a grammar: a hero, a place, a wish, a trouble, a helper, an ending. Held out
by request.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.ember.exchange import Exchange, phrase
from tests.ember.notation import words
from tests.ember.words import ANIMALS, FIRST_NAMES, OBJECTS, made_up_word

TRAITS = words(
    """little brave curious quiet clever shy cheerful old young lazy kind small gentle hungry
    sleepy proud lonely funny patient restless"""
)
JOBS = words(
    """baker fisherman gardener knight painter shepherd sailor clockmaker teacher farmer miller
    tailor postman cook woodcutter musician robot wizard"""
)
PLACES = (
    "a small village by the sea",
    "a quiet valley",
    "a tall lighthouse",
    "an old mill near the river",
    "a busy town with red roofs",
    "the edge of a dark forest",
    "a snowy mountain",
    "an island with one palm tree",
    "a castle without a king",
    "a cottage full of clocks",
    "a boat on a wide lake",
    "a garden behind a high wall",
    "a library with ten thousand books",
    "a cave under the hill",
    "a train that never stopped",
    "a desert with blue sand",
    "a street that smelled of bread",
    "a tower above the clouds",
    "a farm at the end of the road",
    "a harbor full of ships",
)
TIMES = (
    "One morning",
    "One rainy evening",
    "One summer day",
    "On the first day of spring",
    "Late one night",
    "On a cold winter morning",
    "One windy afternoon",
    "On a bright Sunday",
    "Early one day",
    "When the leaves turned red",
)
WISHES = (
    "wanted to see the sea",
    "dreamed of flying",
    "wished for a friend",
    "wanted to learn to sing",
    "looked for the lost {o}",
    "wanted to build the best {o} in the land",
    "hoped to find a treasure",
    "wanted to know where the moon sleeps",
    "wished to bake the biggest cake",
    "wanted to win the great race",
    "dreamed of a golden {o}",
    "wanted to cross the river",
    "hoped to make the queen laugh",
    "wanted to write a song",
    "collected every {o} in town",
)
TROUBLES = (
    "a storm broke the bridge",
    "the {o} disappeared without a sound",
    "a thick fog hid the path",
    "the river rose and took the boat away",
    "a loud noise came from under the floor",
    "the light in the tower went out",
    "a {b} stole the only key",
    "nobody could open the heavy gate",
    "the wind carried the map away",
    "the old {o} broke into two pieces",
    "snow covered every road",
    "all the bells fell silent",
    "the well ran dry",
    "a {b} was stuck in a tree",
    "the stars went out one by one",
)
FEELINGS = (
    "{N} was afraid at first, but did not give up.",
    "{N} sat down and thought for a long time.",
    "{N} felt very small.",
    "{N} laughed and rolled up both sleeves.",
    "{N} wanted to cry.",
    '"There must be a way," said {N}.',
    '"I will not go home now," said {N}.',
    "{N} took a deep breath.",
    "{N} packed a bag and set out at once.",
    "{N} asked everyone, but nobody knew what to do.",
)
HELPERS = (
    'Then a {t} {b} came along and said, "I can help you."',
    "A {t} {b} had been watching and offered to help.",
    "Just then, {M} the {b} knocked at the door.",
    "On the way, {N} met {M}, a {t} {b}.",
    "Under a tree sat {M}, a {t} {j} with a long beard.",
    "From far away came the voice of {M}, the {t} {j}.",
    "A {t} {j} called {M} stopped and listened.",
    "Behind the hill lived a {t} {b} who knew the answer.",
)
DEEDS = (
    "Together they built a ladder out of old {o}s.",
    "They followed the sound of a bell through the night.",
    "They shared their bread and made a plan.",
    "They tied a rope to the {o} and pulled with all their strength.",
    "They walked for three days and slept under the stars.",
    "They sang until the whole valley could hear them.",
    "They looked behind every stone and under every leaf.",
    "They lit a hundred candles and waited.",
    "They asked the moon, and the moon showed the way.",
    "They worked until their hands were tired.",
    "They traded the {o} for a pair of warm boots.",
    "They told a joke so good that even the stones laughed.",
)
TURNS = (
    "In the end it was easy.",
    "It took all day, but it worked.",
    "At last they found what they were looking for.",
    "Nobody had thought of that before.",
    "Slowly the trouble went away.",
    "And then, all at once, everything was fine.",
    "When the sun came up, the work was done.",
    "By evening the danger was over.",
)
ENDINGS = (
    "From that day on, {N} was never alone again.",
    "{N} went home and slept better than ever.",
    "That night the whole town danced.",
    "And {N} kept the {o} as a memory.",
    "{N} learned that asking for help is brave.",
    "Since then, people tell the story of {N} every winter.",
    "They stayed friends for the rest of their lives.",
    '{N} smiled and said, "Tomorrow we will do it again."',
    "And if you listen at night, you can still hear them sing.",
    "{N} never forgot that day.",
    "The next morning, {N} was already planning a new journey.",
    "They ate cake until the moon came up.",
)
OPENINGS = (
    "{T} there lived {a} named {N} in {p}.",
    "In {p} lived {a} called {N}.",
    "Once upon a time, {a} named {N} lived in {p}.",
    "{N} was {a} from {p}.",
    "Long ago, in {p}, there was {a} named {N}.",
    "Everybody in {p} knew {N}, {a}.",
)


@dataclass(frozen=True, slots=True)
class Cast:
    """Who and what a story is about."""

    hero: str
    being: str
    thing: str


def _a(text: str) -> str:
    return ("an " if text[0].lower() in "aeiou" else "a ") + text


def tell(rng: Random, cast: Cast) -> str:
    """A story of 60 to 150 words about `cast`."""
    friend = rng.choice([name for name in FIRST_NAMES if name != cast.hero])
    hero = f"{rng.choice(TRAITS)} {cast.being}"

    def line(pattern: str) -> str:
        return pattern.format(
            N=cast.hero,
            M=friend,
            a=_a(hero),
            p=rng.choice(PLACES),
            o=cast.thing,
            b=rng.choice(ANIMALS),
            t=rng.choice(TRAITS),
            j=rng.choice(JOBS),
            T="Many years ago",
        )

    article_fixed = []
    moments = [
        rng.choice(OPENINGS),
        f"Every day {{N}} {rng.choice(WISHES)}.",
        f"{rng.choice(TIMES)}, {rng.choice(TROUBLES)}.",
        rng.choice(FEELINGS),
        rng.choice(HELPERS),
        *rng.sample(DEEDS, rng.choice((1, 2, 2))),
        rng.choice(TURNS),
        *rng.sample(ENDINGS, rng.choice((1, 1, 2))),
    ]
    if rng.random() < 0.3:
        moments.insert(4, f"{rng.choice(TIMES)} it got worse: {rng.choice(TROUBLES)}.")
    for moment in moments:
        article_fixed.append(line(moment))
    story = " ".join(article_fixed)
    for vowel in "aeiou":
        story = story.replace(f" a {vowel}", f" an {vowel}").replace(f"A {vowel}", f"An {vowel}")
    return story


def story(rng: Random) -> Exchange:
    """A story on request, about a given hero, thing, both or neither."""
    hero = rng.choice(FIRST_NAMES) if rng.random() < 0.7 else made_up_word(rng, 2).capitalize()
    being = rng.choice(ANIMALS if rng.random() < 0.6 else tuple(JOBS))
    cast = Cast(hero, being, rng.choice(OBJECTS))
    ask = (
        "(tell me a story|tell me a short story|write a story|write a short story|tell a story|I"
        " want a story|please tell me a story|make up a story|can you tell me a story|story time!"
        " tell a story|give me a short story)"
    )
    about, short = rng.choice(
        (
            ("", ""),
            (f" about {_a(being)}", being),
            (f" about {_a(being)} named {hero}", hero),
            (f" about {_a(being)} called {hero}", hero),
            (f" about {hero}", hero),
            (f" about {hero} the {being}", hero),
            (f" about {_a(being)} and {_a(cast.thing)}", being),
            (f" with {_a(cast.thing)} in it", cast.thing),
            (f" about {_a(cast.thing)}", cast.thing),
            (f" about {hero} and {_a(cast.thing)}", hero),
        )
    )
    question = phrase(rng, ask + about + "(|||.|!|, please)")
    text = tell(rng, cast)
    if short == cast.thing and cast.thing not in text:
        text += f" And the {cast.thing} stood by the window."
    return Exchange(question, text, short, question, "story")


GENERATORS = ((story, 1),)
