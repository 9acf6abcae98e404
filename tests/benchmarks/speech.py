"""Whisper through the daemon against faster-whisper alone: word error rate and speed.

python -m tests.benchmarks.speech WHISPER_FOLDER [--voice VOICE.onnx] [--recording FILE TEXT]...

The sentences below are spoken by espeak-ng, where it is installed, and by a voice of Piper; real
recordings come with what is said in them. Both sides hear each recording in turns, with as many
threads; the ratio is of the sums of their times. A word error rate that is higher by more than 0.2
points, or a ratio below 0.95, is an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runner.backends.host_sampling.threads import physical_cores
from tests.conftest import running_daemon
from tests.speech_models import create

MAX_DIFFERENCE = 0.2  # points of word error rate
MIN_RATIO = 0.95
SENTENCES = (
    "The harbour was quiet before the first boats came in with the morning tide.",
    "Please send the report to the office in London by Thursday afternoon.",
    "She opened the window, and the smell of fresh bread filled the kitchen.",
    "Most of the students had never seen snow until they moved to the north.",
    "The train to the airport leaves every twenty minutes from platform nine.",
    "We walked along the river for an hour and talked about the old house.",
    "A small fire was burning in the fireplace when the guests arrived.",
    "The doctor asked him to drink more water and to rest for a few days.",
    "Nobody could explain why the lights in the theatre went out at midnight.",
    "My brother built this table himself from the wood of a fallen oak tree.",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A recording and what is said in it."""

    source: str
    path: Path
    text: str


def words_of(text: str) -> list[str]:
    """The words without case and signs."""
    return re.findall(r"[a-z0-9']+", text.lower())


def word_errors(heard: str, said: str) -> int:
    """Words to be put in, left out or changed: the edit distance."""
    left, right = words_of(heard), words_of(said)
    row = list(range(len(right) + 1))
    for at, word in enumerate(left, 1):
        diagonal, row[0] = row[0], at
        for column, other in enumerate(right, 1):
            changed = diagonal + (word != other)
            diagonal = row[column]
            row[column] = min(changed, row[column] + 1, row[column - 1] + 1)
    return row[-1]


def samples(folder: Path, voice: Path | None, given: Sequence[Sequence[str]]) -> Iterator[Sample]:
    """All recordings; the spoken ones are written to folder."""
    for recording, text in given:
        yield Sample("recorded", Path(recording), text)
    if shutil.which("espeak-ng"):
        for number, text in enumerate(SENTENCES):
            path = folder / f"espeak-{number}.wav"
            subprocess.run(["espeak-ng", "-s", "150", "-w", path, text], check=True)
            yield Sample("espeak-ng", path, text)
    if voice is not None:
        from piper import PiperVoice

        piper = PiperVoice.load(voice)
        for number, text in enumerate(SENTENCES):
            path = folder / f"piper-{number}.wav"
            with wave.open(str(path), "wb") as file:
                piper.synthesize_wav(text, file)
            yield Sample("piper", path, text)


def through_daemon(client: httpx.Client, sample: Sample) -> str:
    """What hearth hears."""
    with sample.path.open("rb") as file:
        form = {"model": "whisper", "language": "en"}
        reply = client.post("/v1/audio/transcriptions", data=form, files={"file": file})
    return str(reply.raise_for_status().json()["text"])


def alone(model: Any, sample: Sample) -> str:
    """What faster-whisper hears."""
    segments, _ = model.transcribe(str(sample.path), language="en")
    return "".join(segment.text for segment in segments)


def main() -> int:
    """Print a line for each kind of recording, then the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a model in CTranslate2's format")
    parser.add_argument("--voice", type=Path, help="the .onnx file of a Piper voice")
    parser.add_argument("--recording", nargs=2, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from faster_whisper import WhisperModel

    model = WhisperModel(str(options.folder), device="cpu", cpu_threads=physical_cores())
    errors: dict[str, list[int]] = {}
    times = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as scratch:
        given = list(samples(Path(scratch), options.voice, options.recording))
        with running_daemon(Path(scratch) / "home") as daemon, daemon.client(600) as client:
            create(client, "whisper", *options.folder.iterdir())
            sides: tuple[Callable[[Sample], str], ...] = (
                lambda one: alone(model, one),
                lambda one: through_daemon(client, one),
            )
            for side in sides:
                side(given[0])  # loads
            for number in range(options.rounds):
                for sample in given:
                    for which in (0, 1) if number % 2 else (1, 0):
                        began_s = time.perf_counter()
                        heard = sides[which](sample)
                        times[which] += time.perf_counter() - began_s
                        count = errors.setdefault(sample.source, [0, 0, 0])
                        count[which] += word_errors(heard, sample.text)
                    count[2] += len(words_of(sample.text))
    return report(errors, times)


def report(errors: dict[str, list[int]], times: Sequence[float]) -> int:
    """The table; 1 where a bound is broken."""
    rows = {**errors, "all": [sum(row[at] for row in errors.values()) for at in range(3)]}
    for source, (own, daemon, words) in rows.items():
        rates = f"{100 * own / words:.2f} % alone, {100 * daemon / words:.2f} % hearth"
        print(f"{source}: {words} words, word error rate {rates}")
    own, daemon, words = rows["all"]
    ratio = times[0] / times[1]
    print(f"{times[0]:.1f} s alone, {times[1]:.1f} s hearth: speed {ratio:.3f} of faster-whisper's")
    return int(100 * (daemon - own) / words > MAX_DIFFERENCE or ratio < MIN_RATIO)


if __name__ == "__main__":
    sys.exit(main())
