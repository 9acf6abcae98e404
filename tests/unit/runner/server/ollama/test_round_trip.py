"""What show --modelfile prints makes the same model again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from modelfile.build import build
from modelfile.description import from_modelfile
from modelfile.errors import ModelfileError
from modelfile.parser import parse
from modelfile.render import render
from registry.bundle import Bundle, read_bundle
from registry.digest import Digest
from registry.names import Name
from registry.store import Store
from runner.library.descriptions import describe_modelfile
from tests.gguf_files import llama_file
from tests.properties import examples

NAME = Name.parse("round")
FILE = "tiny.gguf"
PIECES = [
    "a",
    "b ",
    " ",
    '"',
    '""',
    '"""',
    "\n",
    "\r\n",
    "\t",
    "#",
    "\\",
    "é",
    "👋",
    "\x01",
    "\u2028",
]
TEXTS = st.lists(st.sampled_from([*PIECES, "SYSTEM x"]), max_size=8).map("".join)
QUOTED = st.tuples(TEXTS, st.sampled_from(["", '"', '"""'])).map(
    lambda both: both[0].join([both[1]] * 2)
)
PARAMETERS = ["temperature 0.7", "top_k 5", 'stop " b "', "stop #", 'grammar """root ::= "a" """']
COMMANDS = st.one_of(
    st.tuples(st.sampled_from(["SYSTEM", "LICENSE", "MESSAGE user", "MESSAGE assistant"]), QUOTED),
    st.tuples(st.just("PARAMETER"), st.sampled_from(PARAMETERS)),
    st.tuples(st.just("TEMPLATE"), st.sampled_from(['{{ .Prompt }}"', '"a\n {{ .Prompt }} "'])),
    st.tuples(st.just("REQUIRES"), st.just("0.1.2")),
)


def made(store: Store, text: str, weights: Digest) -> Bundle:
    for _ in build(store, from_modelfile(parse(text), NAME, {FILE: weights})):
        pass
    return read_bundle(store, store.get(NAME))


@examples(7)
@given(st.lists(COMMANDS, max_size=5))
def test_a_model_made_of_what_is_shown_is_the_same(commands: list[tuple[str, str]]) -> None:
    text = "\n".join([f"FROM ./{FILE}", *map(" ".join, commands)])
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "models")
        try:
            with store.blob_writer() as writer:
                writer.write(llama_file())
                weights = writer.commit()[0]
            try:
                first = made(store, text, weights)
            except ModelfileError:
                return
            shown = render(describe_modelfile(first))
            again = made(store, shown, weights)
            assert parse(shown) == describe_modelfile(first)
            for part in ("system", "template", "parameters", "messages", "licenses", "requires"):
                assert getattr(again, part) == getattr(first, part)
        finally:
            store.close()
