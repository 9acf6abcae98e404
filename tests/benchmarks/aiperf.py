"""A load by a public tool: python -m tests.benchmarks.aiperf PROGRAM [--clients 1,4,16].

PROGRAM is aiperf's, from an environment of its own. It asks a daemon with ember and an echo model
over /v1/chat/completions, streamed; a table of what it measured is printed and kept. It shares the
machine with the daemon, and measures itself with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli.bench.machine import machine_facts
from tests.benchmarks.servers import ROOT
from tests.conftest import running_daemon

MODELS = ("ember", "echo")
PROMPT_LETTERS = 256
ANSWER_TOKENS = 64
REQUESTS_A_CLIENT = 8
TIMEOUT_S = 300.0
COLUMNS = (
    ("tokens/s", "output_token_throughput", "avg"),
    ("requests/s", "request_throughput", "avg"),
    ("TTFT p50, ms", "time_to_first_token", "p50"),
    ("TTFT p99, ms", "time_to_first_token", "p99"),
    ("per token p50, ms", "inter_token_latency", "p50"),
    ("per token p99, ms", "inter_token_latency", "p99"),
    ("errors, %", "request_error_rate", "avg"),
)


def main() -> int:
    """Run it for each model and number of clients; 1 when a request failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.aiperf", description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--clients", default="1,4,16", help="numbers of clients")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-results")
    given = parser.parse_args()
    counts = [int(word) for word in given.clients.split(",")]
    environment = {"HEARTH_NUM_PARALLEL": str(max(counts))}
    with (
        tempfile.TemporaryDirectory(prefix="hearth-aiperf-") as folder,
        running_daemon(Path(folder) / "home", env=environment) as daemon,
    ):
        write_tokenizer(Path(folder) / "bytes")
        results = [
            (model, count, measure(given.program, daemon.url, model, count, Path(folder)))
            for model in MODELS
            for count in counts
        ]
    text = table(results)
    given.out.mkdir(exist_ok=True)
    kept = given.out / f"aiperf-{datetime.now(UTC):%Y%m%d-%H%M%S}.md"
    kept.write_text(text, "utf-8")
    print(f"{text}\nwritten to {kept}")
    return 0 if all(found["request_error_rate"]["avg"] == 0 for _, _, found in results) else 1


def measure(program: Path, url: str, model: str, clients: int, folder: Path) -> dict[str, Any]:
    """What aiperf says of one load, in the words of its JSON. Raises RuntimeError with the end of
    its output when it fails."""
    out = folder / f"{model}-{clients}"
    command = [
        *(str(program.absolute()), "profile", "--model", model, "--url", url),
        *("--endpoint-type", "chat", "--streaming", "--concurrency", str(clients)),
        *("--request-count", str(clients * REQUESTS_A_CLIENT), "--tokenizer", "./bytes"),
        *("--warmup-request-count", str(clients), "--use-server-token-count"),
        *("--synthetic-input-tokens-mean", str(PROMPT_LETTERS)),
        *("--extra-inputs", f"max_tokens:{ANSWER_TOKENS}"),
        *("--extra-inputs", "ignore_eos:true", "--ui", "none", "--no-gpu-telemetry"),
        *("--no-server-metrics", "--output-artifact-dir", str(out)),
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"aiperf ended with {done.returncode}: {done.stdout[-2000:]}")
    found: dict[str, Any] = json.loads((out / "profile_export_aiperf.json").read_text("utf-8"))
    print(f"{model}, {clients} clients: {found['output_token_throughput']['avg']:.0f} tokens/s")
    return found


def table(results: list[tuple[str, int, dict[str, Any]]]) -> str:
    """The results as Markdown."""
    facts = machine_facts()
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores; aiperf {results[0][2]['aiperf_version']};"
        f" prompts of {PROMPT_LETTERS} letters, answers of {ANSWER_TOKENS} tokens",
        "",
        "| model | clients | " + " | ".join(title for title, _, _ in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for model, count, found in results:
        cells = (f"{found[name][statistic]:,.1f}" for _, name, statistic in COLUMNS)
        lines.append(f"| {model} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write_tokenizer(folder: Path) -> None:
    """A tokenizer with a token for each byte: aiperf makes its prompts with one, and would
    download it. The letters for bytes are those of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    end = {"id": 256, "content": "<end>", "special": True, "single_word": False, "lstrip": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{**end, "rstrip": False, "normalized": False}],
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {letters[byte]: byte for byte in range(256)},
            "merges": [],
        },
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
