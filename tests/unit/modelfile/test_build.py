"""Building bundles: from a file, from a model, and what a failure leaves."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelfile.build import build
from modelfile.description import Description, from_modelfile
from modelfile.errors import (
    BuildError,
    ParameterError,
    TemplateError,
    UnknownParameter,
)
from modelfile.parser import parse
from modelfile.render import render
from registry.bundle import Bundle, BundleMessage, read_bundle
from registry.digest import Digest
from registry.errors import BlobMissing, InvalidGguf, ModelMissing, StoreError
from registry.names import Name
from registry.store import Store
from runner.library.descriptions import describe_modelfile
from tests.echo_models import echo_gguf, install_echo
from tests.gguf_files import (
    all_llama_tensors,
    echo_file,
    gguf_file,
    llama_file,
    llama_metadata,
    text,
    tokenizer,
    u16,
)
from tests.unit.registry.faulty_disk import faulty_disk

NAME = Name.parse("tiny")
FULL = """FROM ./tiny.gguf
SYSTEM You are tiny.
TEMPLATE {% for m in messages %}{{ m.content }}{% endfor %}
PARAMETER temperature 0.3
PARAMETER stop <|a|>
PARAMETER stop <|b|>
MESSAGE user hi
MESSAGE assistant hello
LICENSE MIT
LICENSE also this
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def upload(store: Store, content: bytes) -> Digest:
    with store.blob_writer() as writer:
        writer.write(content)
        return writer.commit()[0]


def make(store: Store, modelfile: str = "FROM ./tiny.gguf", content: bytes | None = None) -> Bundle:
    digest = upload(store, llama_file() if content is None else content)
    lines = list(build(store, from_modelfile(parse(modelfile), NAME, {"tiny.gguf": digest})))
    assert lines[-2:] == ["writing manifest", "success"]
    return read_bundle(store, store.get(NAME))


def files(store: Store) -> set[str]:
    return {str(p.relative_to(store.root)) for p in store.root.rglob("*") if p.is_file()}


def test_a_modelfile_becomes_a_bundle(store: Store) -> None:
    bundle = make(store, FULL)
    assert bundle.system == "You are tiny."
    assert bundle.template == "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert bundle.parameters == {"temperature": 0.3, "stop": ["<|a|>", "<|b|>"]}
    assert bundle.messages == (BundleMessage("user", "hi"), BundleMessage("assistant", "hello"))
    assert bundle.licenses == ("MIT", "also this")
    assert bundle.header.architecture == "llama"
    assert bundle.model_path.read_bytes() == llama_file()
    assert bundle.model_size_bytes == len(llama_file())


def test_the_config_says_what_ollama_shows(store: Store) -> None:
    make(store)
    manifest = store.get(NAME).manifest
    config = json.loads(store.read_blob(manifest.config.digest, 10_000))
    assert config == {
        "model_format": "gguf",
        "model_family": "llama",
        "model_families": ["llama"],
        "model_type": "62.0K",
        "file_type": "F32",
        "context_length": 128,
        "embedding_length": 64,
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [str(layer.digest) for layer in manifest.layers]},
    }


def test_the_same_description_gives_the_same_model(store: Store) -> None:
    make(store, FULL)
    first = store.get(NAME).digest
    make(store, FULL)
    assert store.get(NAME).digest == first


def test_progress_is_told_in_ollamas_words(store: Store) -> None:
    digest = upload(store, echo_file())
    lines = list(build(store, Description(NAME, files={"e.gguf": digest}, system="x")))
    assert lines[:3] == [
        "reading the model",
        f"using existing layer {digest}",
        f"creating new layer {Digest.of(b'x')}",
    ]
    assert lines[-2:] == ["writing manifest", "success"]


def test_a_derived_model_keeps_what_it_does_not_change(store: Store) -> None:
    base = make(store, FULL)
    derived = Name.parse("other")
    description = Description(
        derived, from_model=Name.parse("TINY"), parameters={"top_k": 5}, licenses=("more",)
    )
    assert f"using existing layer {Digest.of(b'MIT')}" in list(build(store, description))
    bundle = read_bundle(store, store.get(derived))
    assert bundle.parameters == {**base.parameters, "top_k": 5}
    assert bundle.licenses == (*base.licenses, "more")
    assert (bundle.system, bundle.template, bundle.messages, bundle.model_path) == (
        base.system,
        base.template,
        base.messages,
        base.model_path,
    )


def test_what_was_measured_of_weights_stays_with_them(store: Store) -> None:
    side = {"perplexity": 9.5, "error": 0.1, "tokens": 100, "chunks": 1, "context": 512}
    measured = {"type": "Q4_0", "text": "a text", "before": side, "after": side}
    digest = upload(store, llama_file())
    list(build(store, Description(name=NAME, files={"m": digest}, perplexity=measured)))
    assert read_bundle(store, store.get(NAME)).perplexity == measured
    other = Name.parse("other")
    list(build(store, Description(name=other, from_model=NAME, system="Hi.")))
    assert read_bundle(store, store.get(other)).perplexity == measured
    list(build(store, Description(name=other, from_model=NAME, weights=digest)))
    assert read_bundle(store, store.get(other)).perplexity is None


def test_a_derived_model_replaces_or_removes_what_it_names(store: Store) -> None:
    make(store, FULL)
    description = Description(NAME, from_model=NAME, system="", template="T", messages=())
    list(build(store, description))
    bundle = read_bundle(store, store.get(NAME))
    assert (bundle.system, bundle.template, bundle.messages) == (None, "T", ())


def test_a_modelfile_that_is_shown_makes_the_same_model_again(store: Store) -> None:
    bundle = make(store, FULL)
    wanted = describe_modelfile(bundle).commands[1:]
    for name in map(Name.parse, ("again", "and-again", "again")):
        shown = parse(render(describe_modelfile(bundle)))
        list(build(store, from_modelfile(shown, name)))
        bundle = read_bundle(store, store.get(name))
        assert describe_modelfile(bundle).commands[1:] == wanted


def test_a_model_may_be_rebuilt_from_itself(store: Store) -> None:
    make(store, FULL)
    list(build(store, Description(NAME, from_model=NAME, parameters={"stop": ["only"]})))
    assert read_bundle(store, store.get(NAME)).parameters["stop"] == ["only"]
    assert len(store.models()) == 1


def test_a_draft_model_is_a_layer_and_is_inherited(store: Store) -> None:
    draft = upload(store, echo_gguf(salt="draft"))
    base = upload(store, echo_gguf())
    list(build(store, Description(NAME, files={"tiny.gguf": base}, draft=draft)))
    bundle = read_bundle(store, store.get(NAME))
    assert bundle.draft is not None
    assert bundle.draft.path == store.blob_path(draft)
    child = Name.parse("child")
    list(build(store, Description(child, from_model=NAME, system="hi")))
    again = read_bundle(store, store.get(child)).draft
    assert again is not None
    assert again.path == bundle.draft.path


def test_a_draft_model_must_be_another_model_of_the_same_vocabulary(store: Store) -> None:
    base = upload(store, llama_file())
    others = llama_metadata() | tokenizer(("a", "b", "z", "<0x0A>"))
    kept = llama_metadata() | {"hearth.checkpoint.config": text("{}")}
    more = llama_metadata() | tokenizer(("a", "b", "c", "d", "<0x0A>"))
    for metadata, message in (
        (kept, "a quantized checkpoint, which only the backend torch can load"),
        (others, "tokenizer.ggml.tokens differs"),
        (more, "has 5 tokens and the model 4: both need the same vocabulary"),
    ):
        tensors = all_llama_tensors(5 if metadata is more else 4)
        draft = upload(store, gguf_file(metadata, tensors))
        with pytest.raises(BuildError, match=message):
            list(build(store, Description(NAME, files={"m": base}, draft=draft)))
    with pytest.raises(BuildError, match="DRAFT is the model itself"):
        list(build(store, Description(NAME, files={"m": base}, draft=base)))
    with pytest.raises(ModelMissing):
        store.get(NAME)


def test_renderer_parser_and_required_version_are_kept_and_inherited(store: Store) -> None:
    made = make(store, "FROM ./tiny.gguf\nRENDERER qwen3-coder\nPARSER qwen3\nREQUIRES 0.14.0")
    assert (made.renderer, made.parser, made.requires) == ("qwen3-coder", "qwen3", "0.14.0")
    child = Name.parse("child")
    list(build(store, Description(child, from_model=NAME, parser="harmony")))
    bundle = read_bundle(store, store.get(child))
    assert (bundle.renderer, bundle.parser, bundle.requires) == ("qwen3-coder", "harmony", "0.14.0")


def test_a_renderer_that_is_not_built_in_is_refused_with_and_without_a_template(
    store: Store,
) -> None:
    template = "TEMPLATE {{ range .Messages }}{{ .Content }}{{ end }}"
    for more in ("", f"\n{template}"):
        with pytest.raises(BuildError, match=r"RENDERER ornith is not built in; leave it out"):
            make(store, f"FROM ./tiny.gguf\nRENDERER ornith{more}", echo_gguf())


def test_names_of_families_that_only_the_model_knows_make_the_round_trip(store: Store) -> None:
    of_tomorrow = {"renderer": "olmo9", "parser": "olmo9-think"}
    pulled = install_echo(store, "pulled", config=of_tomorrow)
    shown = render(describe_modelfile(read_bundle(store, pulled)))
    assert "RENDERER olmo9\nPARSER olmo9-think" in shown
    child = Name.parse("child")
    list(build(store, from_modelfile(parse(shown), child)))
    bundle = read_bundle(store, store.get(child))
    assert (bundle.renderer, bundle.parser) == ("olmo9", "olmo9-think")
    with pytest.raises(BuildError, match="unknown PARSER 'olmo8'"):
        list(build(store, Description(child, from_model=Name.parse("pulled"), parser="olmo8")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RENDERER a b", "RENDERER is 'a b', expected a name such as qwen3-coder"),
        ("PARSER ../x", "PARSER is '../x', expected a name"),
        ("PARSER qwen3-codr", "unknown PARSER 'qwen3-codr'; did you mean qwen3-coder"),
        ("RENDERER olmo4", "unknown RENDERER 'olmo4'; did you mean olmo3"),
        ("REQUIRES newest", "REQUIRES is 'newest', expected a version such as 0.14.0"),
        ("REQUIRES v0.33.0", "REQUIRES v0.33.0 is newer than Ollama 0.32"),
    ],
)
def test_a_family_name_that_cannot_be_one_is_refused(store: Store, line: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make(store, f"FROM ./tiny.gguf\n{line}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("FROM ./p.gguf", "2 FROM lines; use one"),
        ("ADAPTER ./lora", "ADAPTER names a file that was not provided"),
        ("DRAFT ./small", "DRAFT names a file that was not provided"),
    ],
)
def test_a_modelfile_alone_describes_one_model_without_further_files(
    line: str, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        from_modelfile(parse(f"FROM a\n{line}"), NAME)


def test_a_bad_parameter_of_a_modelfile_is_told_with_its_line() -> None:
    with pytest.raises(ParameterError, match="line 2: unknown parameter 'tmperature'; did you"):
        from_modelfile(parse("FROM a\nPARAMETER tmperature 1"), NAME)
    with pytest.raises(ParameterError, match="line 3: parameter top_k is 'x', expected"):
        from_modelfile(parse("FROM a\n\nPARAMETER top_k x"), NAME)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"from_model": None}, BuildError, "the name of an installed model, or"),
    ({"from_model": Name.parse("gone")}, ModelMissing, "model 'gone' not found"),
    ({"parameters": {"top_k": -1}}, ParameterError, "parameter top_k is '-1'"),
    ({"parameters": {"temperature": float("nan")}}, ParameterError, "temperature is 'nan'"),
    ({"parameters": {"no_such": 1}}, UnknownParameter, "unknown parameter 'no_such'"),
    ({"template": "{{ if .Prompt }}"}, TemplateError, "the template, line 1: unexpected EOF"),
    ({"template": "{% if %}"}, TemplateError, "the template, line 1"),
    ({"messages": (BundleMessage("tool", "x"),)}, BuildError, "invalid message role 'tool'"),
    ({"system": "x" * (2**20 + 1)}, BuildError, "SYSTEM has 1048577 bytes, at most 1048576"),
    ({"licenses": ("x" * (2**20 + 1),)}, BuildError, "LICENSE has 1048577 bytes"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED)
def test_a_description_that_cannot_be_built_leaves_the_store_as_it_was(
    store: Store, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    make(store, FULL)
    before = files(store)
    with pytest.raises(error, match=message):
        list(build(store, Description(**{"name": NAME, "from_model": NAME, **changes})))
    assert files(store) == before


def test_a_file_that_is_not_in_the_store_is_told(store: Store) -> None:
    digest = Digest.of(b"never uploaded")
    with pytest.raises(BlobMissing, match=str(digest)):
        list(build(store, Description(NAME, files={"x.gguf": digest})))


def test_several_files_are_refused(store: Store) -> None:
    digest = upload(store, llama_file())
    with pytest.raises(BuildError, match=r"expected one GGUF file, got 2 \(a.gguf, b.gguf\)"):
        list(build(store, Description(NAME, files={"a.gguf": digest, "b.gguf": digest})))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a model", "not a GGUF file"),
        (b"", "not a GGUF file: it has 0 bytes"),
        (llama_file()[:5000], "truncated: "),
        (gguf_file(llama_metadata()), "a vocabulary and no tensors"),
        (gguf_file({"general.architecture": text("x" * 99)}), "general.architecture is"),
    ],
)
def test_a_file_that_is_no_model_is_refused_and_removed(
    store: Store, content: bytes, message: str
) -> None:
    before = files(store)
    digest = upload(store, content)
    with pytest.raises(InvalidGguf, match=message):
        list(build(store, Description(NAME, files={"x.gguf": digest})))
    assert files(store) == before


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("split.count", u16(3), "one of 3 parts"),
        (
            "general.type",
            text("mmproj"),
            "is a multimodal projector, not a language model; give the model too",
        ),
        ("general.type", text("adapter"), "the GGUF file is of type adapter"),
    ],
)
def test_a_gguf_that_is_no_whole_language_model_is_refused(
    store: Store, key: str, value: Any, message: str
) -> None:
    digest = upload(store, gguf_file(llama_metadata() | {key: value}))
    with pytest.raises(BuildError, match=message):
        list(build(store, Description(NAME, files={"x.gguf": digest})))


def test_a_build_that_is_given_up_leaves_nothing(store: Store) -> None:
    digest = upload(store, llama_file())
    before = files(store)
    description = from_modelfile(parse(FULL), NAME, {"tiny.gguf": digest})
    steps = len(list(build(store, description)))
    store.delete(NAME)
    for count in range(1, steps):
        upload(store, llama_file())
        lines = build(store, description)
        for _ in range(count):
            next(lines)
        lines.close()
        assert files(store) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_the_old_model_or_the_new_one_whole(
    store: Store, number: int
) -> None:
    make(store, FULL)
    old = store.get(NAME).digest
    before = files(store)
    for fail_at in range(1, 40):
        description = Description(NAME, from_model=NAME, system=f"system {fail_at}")
        try:
            with faulty_disk(fail_at, number):
                list(build(store, description))
        except StoreError as error:
            assert "cannot " in error.message  # noqa: PT017
        if store.get(NAME).digest == old:
            assert files(store) == before
        assert store.get(NAME).fault is None
        old, before = store.get(NAME).digest, files(store)
