"""Questions about hearth, from the table in `facts`. The phrasing is held out, never the fact."""

from __future__ import annotations

from random import Random

from tests.ember import facts
from tests.ember.exchange import Exchange, phrase

HOW = (
    (
        "(how do I|how can I|how do you|how would I|how to|how could I) {t}( in hearth|||| with"
        " hearth| using hearth|, please)(?||?)"
    ),
    "(I want to|I'd like to|I need to|I would like to|I have to) {t}( in hearth|||)",
    (
        "(what is the way to|what's the way to|what is the best way to|is there a way to|can I)"
        " {t}( in hearth|||)(?|)"
    ),
    "(show me how to|tell me how to|explain how to|help me|please help me) {t}",
)
WHICH_COMMAND = (
    "(which command|what command|which hearth command|what hearth command) (do I use to|lets me|do"
    " I need to|should I use to|is there to|will) {t}(?|)"
)
ASK_USAGE = (
    "(what does|what will) `{n}` do?",
    "(what does|what will) {n} do?",
    "what is {n} for?",
    "what is `{n}` for?",
    "explain {n}",
    "explain the command {n}",
    "tell me about {n}",
    "what is the use of {n}?",
    "describe {n}",
    "when do I use {n}?",
    "{n}?",
    "what happens when I (run|type) {n}?",
    "what is {n}?",
    "what's {n}?",
    "what is the purpose of {n}?",
    "(can you|could you|please) explain {n}",
)
ASK_NAMED = (
    "what does {n} do?",
    "what is {n}?",
    "what's {n}?",
    "what is {n} for?",
    "explain {n}",
    "tell me about {n}",
    "what does {n} mean?",
    "(what does|what will) the {k} {n} do?",
    "what is the {k} {n}?",
    "what is the {k} {n} for?",
    "explain the {k} {n}",
    "describe {n}",
    "{n}?",
    "what is {n} used for?",
    "when do I (use|need) {n}?",
    "(can you|could you|please) explain {n}",
    "what is the (purpose|meaning) of {n}?",
)
ASK_DEFAULT = (
    "what is the default (of|for|value of) {n}?",
    "what's the default (of|for|value of) {n}?",
    "which (value|default) does {n} have by default?",
    "what is {n} by default?",
    "default of {n}",
    "tell me the default (of|for|value of) {n}",
    "which default has {n}?",
    "what does {n} default to?",
    "if I do not set {n}, what is it?",
    "how much is {n} by default?",
)


def command(rng: Random) -> Exchange:
    """Which command does it, and what a command does."""
    entry = rng.choice(facts.COMMANDS + facts.COMMANDS + facts.FLAGS)
    if rng.random() < 0.6:
        pattern = WHICH_COMMAND if rng.random() < 0.3 else rng.choice(HOW)
        question = phrase(rng, pattern, t=rng.choice(entry.asks))
        return Exchange(
            question, f"Use `{entry.usage}`: it {entry.says}.", f"`{entry.usage}`", question
        )
    if entry in facts.FLAGS:
        question = phrase(rng, rng.choice(ASK_NAMED), n=entry.name, k="flag")
        if entry.name.startswith("show"):
            question = phrase(rng, rng.choice(ASK_USAGE), n="hearth " + entry.name)
        return Exchange(question, f"`{entry.usage}` {entry.says}.", entry.says, question)
    question = phrase(rng, rng.choice(ASK_USAGE), n="hearth " + entry.name)
    if rng.random() < 0.2:
        question = phrase(
            rng, rng.choice(ASK_NAMED), n=entry.name, k=rng.choice(("command", "hearth command"))
        )
        if "command" not in question:
            question = question.rstrip("?") + " in hearth?"
    return Exchange(question, f"`{entry.usage}` {entry.says}.", entry.says, question)


def chat(rng: Random) -> Exchange:
    """What can be typed inside the chat."""
    entry = rng.choice(facts.CHAT)
    if rng.random() < 0.6:
        question = phrase(rng, rng.choice(HOW), t=rng.choice(entry.asks))
        return Exchange(
            question, f"Use `{entry.usage}`: it {entry.says}.", f"`{entry.usage}`", question
        )
    question = phrase(
        rng, rng.choice(ASK_NAMED), n=entry.name, k=rng.choice(("chat command", "command"))
    )
    return Exchange(question, f"`{entry.usage}` {entry.says}.", entry.says, question)


def modelfile(rng: Random) -> Exchange:
    """Modelfile instructions and parameters."""
    if rng.random() < 0.5:
        entry, kind = rng.choice(facts.INSTRUCTIONS), "Modelfile instruction"
        usage = f"`{entry.name}` in the Modelfile"
    else:
        entry, kind = rng.choice(facts.PARAMETERS), "parameter"
        usage = f"`PARAMETER {entry.name}` in the Modelfile"
    if entry.default is not None and rng.random() < 0.35:
        question = phrase(rng, rng.choice(ASK_DEFAULT), n=entry.name)
        return Exchange(
            question, f"The default of {entry.name} is {entry.default}.", entry.default, question
        )
    if rng.random() < 0.5:
        which = "(which|what) {k} (do I use to|lets me|do I need to|is there to) {t}(?|)"
        question = phrase(rng, rng.choice((*HOW, which, which)), t=rng.choice(entry.asks), k=kind)
        return Exchange(question, f"Use {usage}: it {entry.says}.", f"{usage}", question)
    question = phrase(rng, rng.choice(ASK_NAMED), n=entry.name, k=kind)
    return Exchange(question, f"`{entry.name}` {entry.says}.", entry.says, question)


def environment(rng: Random) -> Exchange:
    """Environment variables."""
    entry = rng.choice(facts.VARIABLES)
    name = rng.choice((entry.name, entry.name, f"`{entry.name}`"))
    if entry.default is not None and rng.random() < 0.35:
        question = phrase(rng, rng.choice(ASK_DEFAULT), n=name)
        return Exchange(
            question, f"The default of {entry.name} is {entry.default}.", entry.default, question
        )
    if rng.random() < 0.5:
        which = (
            "(which|what) (environment variable|variable|setting|HEARTH variable) (do I use to|lets"
            " me|do I need to|is there to|do I set to) {t}(?|)"
        )
        question = phrase(rng, rng.choice((*HOW, which, which)), t=rng.choice(entry.asks))
        return Exchange(question, f"Set {entry.name}: it {entry.says}.", entry.name, question)
    question = phrase(
        rng, rng.choice(ASK_NAMED), n=name, k=rng.choice(("variable", "environment variable"))
    )
    return Exchange(question, f"{entry.name} {entry.says}.", entry.says, question)


def about(rng: Random) -> Exchange:
    """What hearth is."""
    fact = rng.choice(facts.ABOUT)
    core = rng.choice(fact.asks)
    question = phrase(
        rng,
        "(|||please tell me: |quick question: |hey, |can you tell me: |I wonder, |hello, |one"
        " question: |so, |tell me, )" + core + "(?|?|)",
    )
    return Exchange(question, fact.says, fact.short, question)


GENERATORS = ((command, 5), (chat, 2), (modelfile, 4), (environment, 5), (about, 4))
