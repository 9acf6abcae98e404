"""How long a Modelfile of 1 MB takes to parse: python -m tests.benchmarks.modelfile_parser

Several shapes: one long text, a long conversation, and very many short commands.
"""

from __future__ import annotations

import time

from modelfile.parser import decode, parse

TARGET_MS = 50.0
SIZE_BYTES = 1_000_000
ROUNDS = 7

LINE = "You are a careful assistant; answer in full sentences.\n"
TURNS = f'MESSAGE user """Who keeps\nthe fire?"""\nMESSAGE assistant """{LINE * 4}"""\n'
COMMANDS = 'PARAMETER stop "<|end|>"\nMESSAGE user """Who keeps\nthe fire?"""\n# a comment\n\n'


def modelfiles() -> dict[str, bytes]:
    """The texts, about SIZE_BYTES each, by what they are made of."""
    text = LINE * (SIZE_BYTES // len(LINE))
    commands = COMMANDS * (SIZE_BYTES // len(COMMANDS))
    return {
        "one text": f'FROM base\nSYSTEM """{text}"""\n'.encode(),
        "one line": f"FROM base\nSYSTEM {text.replace(chr(10), ' ')}\n".encode(),
        "messages": f"FROM base\n{TURNS * (SIZE_BYTES // len(TURNS))}".encode(),
        "many commands": f"FROM base\n{commands}".encode(),
        "comments": ("FROM base\n" + f"# {LINE}" * (SIZE_BYTES // (len(LINE) + 2))).encode(),
        "blank lines": b"FROM base" + b" \t\n" * (SIZE_BYTES // 3),
    }


def milliseconds(content: bytes) -> float:
    """The fastest of some rounds."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        parse(decode(content))
        best_s = min(best_s, time.perf_counter() - began_s)
    return best_s * 1e3


def main() -> None:
    """Print a line for each text."""
    for name, content in modelfiles().items():
        took_ms = milliseconds(content)
        verdict = "met" if took_ms <= TARGET_MS else "missed"
        size_mb = len(content) / 1e6
        print(f"{name:14} {size_mb:.2f} MB {took_ms:7.2f} ms (target {TARGET_MS:g}: {verdict})")


if __name__ == "__main__":
    main()
