"""A text read in parts has the tokens that it has as a whole, in every kind of vocabulary."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest
from llama_cpp import llama_cpp as native

from modelfile.convert.vocabulary import read_vocabulary
from runner.backends.backend import TooManyTokens
from runner.backends.host_sampling import text_cuts
from runner.backends.host_sampling import tokenizer as module
from runner.backends.host_sampling.library import start_library
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.backends.turns import on_pause
from runner.errors import InvalidRequest
from runner.worker.turns import STACK_BYTES
from tests.vocabulary_files import vocabulary_file

UNIT = Path(__file__).parents[3]
TRAINED = UNIT / "modelfile" / "convert" / "vocabulary" / "trained"
SHARED = Path(__file__).parents[6] / "shared" / "vocab"
NAMES = sorted(path.stem for path in TRAINED.glob("*.ids"))
PUBLISHED = ["llama-spm", "llama-bpe", "qwen2", "bert-bge"]
QUICK = ("gpt-2", "spm-bpe", "unigram", "wordpiece", "tekken", "byte-fallback")
# llama.cpp's names of ways to split into words that no trained vocabulary has
WAYS = ["superbpe", "kimi-k2", "youtu", "tiny_aya", "laguna", "afmoe", "chameleon", "default"]
BITS = (
    *("a", "b", " ", "  ", "\n", "\n\n", "\t", "\r\n", "foo", " bar", " The", "'s", "'ll", "12"),
    *("1234", " 99", ".", ",", "...", ")", "(", "<", ">", "|", "/", "=====", "_", "-", "aB", "\0"),
    *("中", "国", "人民", "，", "。", "です", "カ", "é", "é", "привет", " мир", "한국", " 어"),
    *("🌍", "👨‍👩‍👧", "\u00a0", "\u3000", "▁", "▁▁", "ﬁ", "²", "ก็", " नमस्ते", "İ", "ß", "\ufeff"),
    *("<s>", "</s>", "<unk>", "[MASK]", "[SEP]", "<|im_start|>", "<|endoftext|>", "Abc中国Def"),
)


def open_vocabulary(path: Path) -> LlamaCppTokenizer:
    start_library()
    params = native.llama_model_default_params()
    params.vocab_only = True
    model = native.llama_model_load_from_file(str(path).encode(), params)
    assert model
    return LlamaCppTokenizer(native.llama_model_get_vocab(model))


def trained(name: str, folder: Path, way: str | None = None) -> LlamaCppTokenizer:
    golden = json.loads((TRAINED / f"{name}.ids").read_text())
    path = TRAINED / f"{name}.json"
    files = {"tokenizer.json": path}
    if not path.exists():
        files = {"tokenizer.model": path.with_suffix(".model")}
    values = list(read_vocabulary(files, golden["size"]))
    if way is not None:
        values = [
            type(value)(value.key, value.kind, way) if value.key == "tokenizer.ggml.pre" else value
            for value in values
        ]
    target = folder / "vocabulary.gguf"
    target.write_bytes(vocabulary_file(values))
    return open_vocabulary(target)


def check(tokenizer: LlamaCppTokenizer, monkeypatch: pytest.MonkeyPatch, texts: int) -> None:
    """Random texts, in parts of a few characters."""
    monkeypatch.setattr(text_cuts, "PART_BYTES", 24)
    monkeypatch.setattr(text_cuts, "_WINDOW", 8)
    monkeypatch.setattr(text_cuts, "WHOLE_BYTES", 48)
    monkeypatch.setattr(module, "WHOLE_BYTES", 48)
    rng = random.Random(7)
    parts = 0
    for _ in range(texts):
        bits = BITS if rng.random() < 0.6 else rng.sample(BITS, 4)
        text = "".join(rng.choices(bits, k=rng.randrange(10, 100)))
        data = text.encode()
        for special in (True, False):
            whole = tokenizer._encode(data, True, special)
            assert tokenizer.encode(text, add_bos=True, parse_special=special) == whole, text
            cuts = tokenizer._text_cuts().parts(data, parse_special=special)
            parts += sum(1 for _ in cuts)
    assert parts > 2 * texts  # they were cut


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in NAMES]
)
def test_parts_have_the_tokens_of_the_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(trained(name, tmp_path), monkeypatch, 15 if name in QUICK else 60)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_and_for_all_ways_to_split_into_words(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(trained("gpt-2", tmp_path, way), monkeypatch, 60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PUBLISHED)
def test_and_in_published_vocabularies(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SHARED / f"ggml-vocab-{kind}.gguf"
    if not path.exists():
        pytest.skip("the vocabularies are not at hand")
    check(open_vocabulary(path), monkeypatch, 60)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("spm-bpe", "<s>"),
        ("gpt-2", "</s>"),
        *(
            pytest.param(*of, marks=pytest.mark.long)
            for of in (("spm-bpe", "\0"), ("unigram", "a "), ("wordpiece", "[SEP]"))
        ),
    ],
)
def test_time_grows_with_the_length_of_a_text(name: str, unit: str, tmp_path: Path) -> None:
    tokenizer = trained(name, tmp_path)
    tokenizer._text_cuts()

    def cpu_s(size: int) -> float:
        text = unit * (size // len(unit))
        began_s = time.thread_time()
        try:
            tokenizer.encode(text, add_bos=True, parse_special=True)
        except InvalidRequest:
            assert len(text) >= text_cuts.MAX_PART_BYTES
        return time.thread_time() - began_s

    cpu_s(1 << 16)
    small = min(cpu_s(1 << 16) for _ in range(2))
    assert any(cpu_s(1 << 18) < 4 * small * 1.7 + 0.02 for _ in range(2))


def test_what_cannot_fit_is_not_read_to_its_end(tmp_path: Path) -> None:
    tokenizer = trained("gpt-2", tmp_path)
    turns = 0

    def pause() -> None:
        nonlocal turns
        turns += 1

    tokenizer._text_cuts()
    on_pause(pause)
    try:
        with pytest.raises(TooManyTokens) as caught:
            tokenizer.encode("some words " * 400_000, add_bos=True, parse_special=True,
                             max_tokens=2000)  # fmt: skip
    finally:
        on_pause(None)
    assert len(caught.value.tokens) == caught.value.count > 2000
    assert 0 < turns < 20
    tokens = tokenizer.encode("some words " * 10_000, add_bos=True, parse_special=True)
    assert tokens[: len(caught.value.tokens)] == caught.value.tokens[: len(tokens)]


@pytest.mark.parametrize("unit", ["a", " ", "\n", "中", "."])
def test_a_stretch_without_a_place_to_cut_is_short_or_refused(unit: str, tmp_path: Path) -> None:
    tokenizer = trained("gpt-2", tmp_path)
    text = unit * 1_000_000
    with pytest.raises(TooManyTokens):
        tokenizer.encode(text, add_bos=True, parse_special=True, max_tokens=2000)
    with pytest.raises(InvalidRequest, match="cannot be cut"):
        tokenizer.encode(text, add_bos=True, parse_special=True, max_tokens=10**9)


@pytest.mark.parametrize("name", ["tekken", "deepseek-llm", "gpt-4o", "exaone-moe"])
def test_the_longest_stretch_fits_on_the_stack_of_the_threads_that_read_it(
    name: str, tmp_path: Path
) -> None:
    """std::regex recurses; a smaller stack ends the process."""
    tokenizer = trained(name, tmp_path)
    found: list[int] = []

    def read() -> None:
        for unit in "a1 .\n":
            data = unit.encode() * text_cuts.MAX_PART_BYTES
            found.append(len(tokenizer._encode(data, False, True)))

    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=read)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(found) == 5
