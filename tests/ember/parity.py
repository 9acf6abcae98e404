"""Checks that llama.cpp cuts texts into the same tokens as the tokenizer the training used.

`python -m tests.ember.parity --gguf FILE`. Needs llama_cpp, not torch.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from random import Random

from gguf import GGUFReader

from tests.ember.chat import segments
from tests.ember.drivers import GgufDriver
from tests.ember.mixture import stream
from tests.ember.tokenizer import Kind, Tokenizer

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \n\t",
    "\"'`{}[]():;,.!?-_/\\<>|@#$%^&*+=~",
    "éüñßøåçžłñ",
    "жщяюбдф",
    "中文字符日本語",
    "🙂🚀👍🏽",
    "\u00a0\u200b▁…“”",
)
FIXED = (
    "",
    " ",
    "  ",
    "   a   b  ",
    "\n\n",
    "a\nb",
    " leading",
    "trailing ",
    '{"name": "x", "arguments": {"a": [1, 2], "b": {"c": "d"}}}',
    "don't",
    "▁",
    "▁a",
    ' " " ',
    "x" * 300,
    "<tool_call>\n{}\n</tool_call>",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<0x41>",
    "<tools",
    "naïve café",
    "١٢٣",
)


def texts(count: int, seed: int = 5) -> list[str]:
    """Random strings of mixed alphabets, training texts of a seed not trained on, and the awkward
    fixed ones.
    """
    rng = Random(seed)
    found = list(FIXED)
    found += [
        "".join(rng.choice(rng.choice(ALPHABETS)) for _ in range(rng.randint(1, 60)))
        for _ in range(count // 2)
    ]
    found += [
        "".join(text for text, _ in segments(conversation))
        for conversation in islice(stream(987_654), count // 2)
    ]
    return found


def tokenizer_of(path: Path) -> Tokenizer:
    """The tokenizer stored in a GGUF file."""
    reader = GGUFReader(path)
    fields = {
        name: reader.fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "scores", "token_type")
    }
    return Tokenizer(
        list(fields["tokens"]),
        [float(score) for score in fields["scores"]],
        [Kind(kind) for kind in fields["token_type"]],
    )


def differences(path: Path, count: int) -> list[str]:
    """The texts that the two tokenizers cut differently."""
    ours, theirs = tokenizer_of(path), GgufDriver(path, parallel=1)
    return [text for text in texts(count) if ours.encode(text) != theirs.tokenize(text)]


def main(arguments: list[str] | None = None) -> None:
    """Command line of the parity check; exit status 1 when a text differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4000)
    chosen = parser.parse_args(arguments)
    wrong = differences(chosen.gguf, chosen.count)
    for text in wrong[:10]:
        print(f"differs: {text!r}")
    print(f"{len(wrong)} of {chosen.count + len(FIXED)} texts differ")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
