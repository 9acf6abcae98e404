"""Greetings, who ember is, and honest refusals."""

from __future__ import annotations

from random import Random

from tests.ember.exchange import Exchange, phrase
from tests.ember.words import OBJECTS, city, first_name, full_name, made_up_word

CAN_DO = (
    "I can answer questions about hearth, do small sums, spell words, write JSON, call tools and"
    " tell short stories."
)
NAME = "I am ember, the small model bundled with hearth."
MADE_BY = "I was made by hearth's developers."
UNKNOWN = (
    "I don't know {topic}. I am a small model: ask me about hearth, small sums, spelling or the"
    " calendar."
)
LEAD = "(||||hey, |hello, |please tell me: |quick question: |tell me, |so, |can you tell me: )"


def greeting(rng: Random) -> Exchange:
    """Hello."""
    question = phrase(
        rng,
        "(hi|hello|hey|hi there|hello there|good morning|good evening|good afternoon|hello ember|hi"
        " ember|hey there|greetings|yo|hello!|hi!|hey ember|howdy|hello and welcome|hi again|hello"
        " again|hello friend|hi friend|hello my friend|hey you|hello everyone|hi everybody|hello"
        " model|hi computer)(|!|.|!)( nice to meet you|| I am back|| are you there?|)",
    )
    return Exchange(question, "Hello! How can I help you?", "How can I help you", question)


def feelings(rng: Random) -> Exchange:
    """How are you."""
    question = phrase(
        rng,
        LEAD
        + "(how are you|how are you doing|how is it going|how do you feel|are you well|how are you"
        " today|what's up)(?|)",
    )
    return Exchange(question, "I am fine, thank you. How can I help you?", "I am fine", question)


def thanks(rng: Random) -> Exchange:
    """Thank you."""
    question = phrase(
        rng,
        "(thanks|thank you|thank you very much|thanks a lot|many thanks|thx|cool, thanks|great,"
        " thank you|thanks, that helps|perfect, thanks|ok, thank you)(|!|.)( ember|||)",
    )
    return Exchange(question, "You are welcome!", "You are welcome", question)


def farewell(rng: Random) -> Exchange:
    """Goodbye."""
    question = phrase(
        rng,
        "(bye|goodbye|see you|see you later|good night|bye bye|farewell|until next time|I have to"
        " go|talk to you later|that is all)(|!|.)( ember|||)",
    )
    return Exchange(question, "Goodbye!", "Goodbye", question)


def abilities(rng: Random) -> Exchange:
    """What can you do."""
    question = phrase(
        rng,
        LEAD + "(what can you do|what are you able to do|what can I ask you|how can you help"
        " me|help|what do you know|what are your skills|what are you good at|what can you help me"
        " with|what kind of questions can you answer|what questions can I ask|list your"
        " skills)(?|)",
    )
    return Exchange(question, CAN_DO, "questions about hearth", question)


def maker(rng: Random) -> Exchange:
    """Who made you."""
    question = phrase(
        rng,
        LEAD
        + "(who made you|who created you|who built you|who trained you|who developed you|where do"
        " you come from|who are your makers|who is behind you|which company made you|who wrote"
        " you)(?|)",
    )
    return Exchange(question, MADE_BY, "hearth's developers", question)


def nature(rng: Random) -> Exchange:
    """What ember is."""
    if rng.random() < 0.5:
        question = phrase(
            rng,
            LEAD
            + "(are you a human|are you a person|are you real|are you alive|are you a robot|are you"
            " human|are you a real person)(?|)",
        )
        return Exchange(
            question, "No, I am a small language model.", "small language model", question
        )
    question = phrase(
        rng,
        LEAD
        + "(are you chatgpt|are you gpt|are you a big model|how big are you|how many parameters do"
        " you have|what model are you|what kind of model are you|which model is this|how large"
        " are you)(?|)",
    )
    return Exchange(
        question, NAME + " I have about six million parameters.", "six million", question
    )


def name(rng: Random) -> Exchange:
    """The name without a system message."""
    question = phrase(rng, NAME_QUESTION)
    return Exchange(question, NAME, "ember", question)


NAME_QUESTION = (
    LEAD
    + "(what is your name|who are you|what's your name|what are you called|tell me your name|how"
    " are you called|introduce yourself|may I ask your name|do you have a name|what should I call"
    " you|say your name|who am I talking to|with whom am I talking)(?|)"
)


TOPICS: tuple[tuple[str, str], ...] = (
    (
        "who won the {year} (world cup|final|race|tournament|championship|election|olympic games)",
        "who won",
    ),
    ("who (is|was) {person}", "that person"),
    ("when was {person} born", "that person"),
    ("where does {first} live", "that person"),
    ("what did {person} (do|say|write|invent|discover)( in {year}|)", "that person"),
    ("how old is {person}", "that person"),
    ("what is {first}'s (phone number|address|birthday|favorite food|password)", "that"),
    (
        "(what's|what is|how is) the weather( today| like| tomorrow| right now| in {place}"
        "| in {place} today|)",
        "the weather",
    ),
    (
        "will it (rain|snow|be sunny|be hot)( today| tomorrow| in {place}| this week)",
        "the weather",
    ),
    (
        "(what time is it|what's the time|what is the date|what day is it today|what is today's"
        " date|what is the time|what year is it)( now| right now| in {place}|)",
        "the time",
    ),
    ("what is the population of {place}", "that number"),
    ("how (big|far|old|high|large) is {place}", "that number"),
    ("how many people (live in|visit) {place}", "that number"),
    ("who is the (mayor|king|president|queen|leader) of {place}", "that person"),
    ("who (wrote|directed|painted|invented|composed|sang) the {thing} of {place}", "that"),
    ("who (wrote|directed|painted|composed|sang) the (book|film|song|picture) {odd}", "that"),
    ("what (is|are) (the|a) {odd}", "that word"),
    ("what does {odd} mean", "that word"),
    ("what happened (in|in the year) {year}", "that"),
    ("what happened in {place} in {year}", "that"),
    (
        "what is the (price|stock price|share price) of (gold|oil|bitcoin|{odd}|bread|{thing})"
        "( today|)",
        "that price",
    ),
    ("how much does a {thing} cost( in {place}|)", "that price"),
    ("what is the (latest|newest|last) news( about {place}| from {place}|)", "the news"),
    ("what is in the news( today|)", "the news"),
    ("(recommend|suggest) a (good |)(film|book|restaurant|hotel|song)( in {place}|)", "that"),
    (
        "explain (quantum physics|relativity|photosynthesis|the stock market|evolution"
        "|the french revolution|inflation|gravity|black holes|{odd})",
        "that",
    ),
    (
        "how does a (nuclear reactor|jet engine|microwave|quantum computer|vaccine|{odd}) work",
        "that",
    ),
    (
        "translate ({thing}|hello|good night|thank you) (into|to)"
        " (french|spanish|german|japanese|{odd})",
        "that",
    ),
    ("what is the meaning of life", "that"),
    ("what is the (square root|logarithm|cube root) of {number}", "that number"),
    (
        "what is the (tallest|longest|largest|deepest) (mountain|river|building|lake) in {place}",
        "that",
    ),
    (
        "write (a program|code|a script|a function)"
        " (in python|in java|in C|that finds {thing}s|for {place})",
        "how to do that",
    ),
    ("what is the capital of {land}", "that place"),
    ("what is the symbol of {odd}", "that word"),
    ("what does the command hearth {odd} do", "that command"),
    ("what is HEARTH_{loud}", "that variable"),
    ("what sound does a {odd} make", "that animal"),
    (
        "(is it good to|should I) (invest in {odd}|buy a {thing}|move to {place}|take {odd})",
        "that",
    ),
    ("when (was|is) the (battle|festival|feast|treaty|concert) of {place}", "that"),
)
"""Questions outside of what ember knows, and what each is about."""


def unknown(rng: Random) -> Exchange:
    """Anything outside of what ember learned."""
    core, topic = rng.choice(TOPICS)
    odd = made_up_word(rng, 2)
    question = phrase(
        rng,
        LEAD + core + "(?|?|)",
        year=rng.randint(1500, 2030),
        person=full_name(rng),
        first=first_name(rng),
        place=city(rng),
        thing=rng.choice(OBJECTS),
        odd=odd,
        loud=odd.upper(),
        land=made_up_word(rng, 2).capitalize(),
        number=rng.randint(3, 999),
    )
    answer = UNKNOWN.format(topic=topic)
    return Exchange(question, answer, "don't know", question, "unknown")


CHAT_GENERATORS = (
    (greeting, 2),
    (feelings, 1),
    (thanks, 2),
    (farewell, 1),
    (abilities, 2),
    (maker, 2),
    (nature, 1),
    (name, 3),
)
UNKNOWN_GENERATORS = ((unknown, 1),)
