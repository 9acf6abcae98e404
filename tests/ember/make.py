"""Makes ember from nothing: generate, learn the vocabulary, train, export, check the tokenizer.

`python -m tests.ember.make` writes registry/builtin/ember/ember.gguf.
Everything comes from the generator and one seed; nothing is downloaded. Wants the packages torch,
tokenizers, gguf, numpy and jinja2.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from pathlib import Path

GGUF_PATH = Path(__file__).resolve().parent.parent / "ember.gguf"


def main(arguments: list[str] | None = None) -> None:
    """Command line of the whole way."""
    # Threads that spin for long cost more than they save as soon as anything else runs; threads
    # that sleep at once make the optimizer's small products take twice as long (143 ms for 69).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    from tests.ember import export, train

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "ember-training",
        help="folder for checkpoints",
    )
    parser.add_argument("--out", type=Path, default=GGUF_PATH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args(arguments)
    options = ["--seed", str(chosen.seed), "--threads", str(chosen.threads)]
    if chosen.resume:
        options.append("--resume")
    train.main(["--work", str(chosen.work), *options])
    export.main(["--work", str(chosen.work), "--out", str(chosen.out)])
    if importlib.util.find_spec("llama_cpp") is not None:
        from tests.ember import parity

        parity.main(["--gguf", str(chosen.out)])


if __name__ == "__main__":
    main()
