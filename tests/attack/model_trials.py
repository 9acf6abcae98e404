"""`python -m tests.attack.model_trials --kind ember --count 10000`: mutated model files against
what create checks, and those that pass against llama.cpp, each in a process forked for it.

Prints how many were refused, loaded, failed in llama.cpp, and ended it; exit status 1 when one
ended it. A process that loads does what a worker does: the model, a context, its adapter or
projector, and a few tokens computed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attack.mutations import Gguf, mutate, read_gguf

EMBER = Path(__file__).parents[2] / "registry" / "builtin" / "ember" / "ember.gguf"
SMOLLM2 = Path.home() / ".cache" / "hearth-models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CUT_TOKENS = 2048  # of a large vocabulary: reading it would be most of the time
LOAD_LIMIT_S = 30
_LOADED, _FAILED = 0, 3


@dataclass(slots=True)
class Counts:
    """The outcomes of trials. faults: what the failed and the crashed ones were."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of file. mutate: writes the mutant of a seed and a number to a path; check: raises
    where create would refuse it; load: what a worker does with it."""

    mutate: Callable[[int, int, Path], str]
    check: Callable[[Path], None]
    load: Callable[[Path], None]


def mutants(sound: Gguf) -> Callable[[int, int, Path], str]:
    """What writes the mutants of a sound file."""

    def write(seed: int, number: int, path: Path) -> str:
        mutant = mutate(sound, seed, number)
        mutant.write(path)
        return mutant.what

    return write


def trial(target: Target, path: Path) -> str:
    """What became of the mutant there: "refused: why", "loaded", "failed: why", "crashed:
    signal", "fault: in the check itself"."""
    refusal = _refusal(target, path)
    return f"refused: {refusal}" if refusal is not None else load_in_child(target.load, path)


def _refusal(target: Target, path: Path) -> str | None:
    from modelfile.errors import ModelfileError
    from registry.errors import RegistryError

    try:
        target.check(path)
    except (RegistryError, ModelfileError) as error:
        return error.message
    except Exception as error:
        raise AssertionError(f"the check failed itself: {error!r}") from error
    return None


def load_in_child(load: Callable[[Path], None], path: Path) -> str:
    """load(path) in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.close(reader)
            os.dup2(writer, 2)
            signal.alarm(LOAD_LIMIT_S)
            status = _load(load, path)
        except BaseException:
            traceback.print_exc(limit=4)
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read()[-4000:]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"crashed: {name} {_last(said)}"
    code = os.WEXITSTATUS(status)
    if code == _LOADED:
        return "loaded"
    return f"failed: {_last(said)}" if code == _FAILED else f"crashed: exit {code} {_last(said)}"


def _last(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    asserted = [line for line in lines if "GGML_ASSERT" in line or "terminate" in line]
    return (asserted or lines or [""])[-1][:300]


def _load(load: Callable[[Path], None], path: Path) -> int:
    from runner.backends.backend import BackendError
    from runner.errors import HearthError

    try:
        load(path)
    except (HearthError, BackendError) as error:
        os.write(2, f"\n{error}".encode())
        return _FAILED
    return _LOADED


def _plan(path: Path, *, native_kernels: bool = False, **more: Any) -> Any:
    from runner.types import LoadPlan

    return LoadPlan(
        path=str(path),
        backend="llamacpp",
        context_length=256,
        pool_tokens=256,
        max_sequences=2,
        batch_tokens=64,
        threads=1,
        native_kernels=native_kernels,
        **more,
    )


def run_model(path: Path, **more: Any) -> None:
    """Load a model as a worker does, and compute a few tokens. Raises ModelLoadFailed."""
    from llama_cpp import llama_cpp as native

    from runner.backends.llamacpp.loader import load

    loaded = load(_plan(path, **more), lambda share: None)
    tokens = loaded.tokenizer.encode("Hello, world\n 1 é", add_bos=True, parse_special=True)[:40]
    for token in tokens:
        loaded.tokenizer.text(token)
        loaded.tokenizer.is_end(token)
    context = loaded.backend._context  # type: ignore[attr-defined]
    if tokens:
        array = (native.llama_token * len(tokens))(*tokens)
        batch = native.llama_batch_get_one(array, len(tokens))
        context.decode_native(batch)
    if loaded.vision is not None:
        _encode(loaded.vision)


def run_adapter(path: Path) -> None:
    """Load an adapter of ember as a worker does, for hearth's kernels and for llama.cpp, which has
    no DoRA, and compute a few tokens with it, beside others without it where one batch may have
    both. Raises ModelLoadFailed, BackendError."""
    from registry.formats.gguf import read_header
    from registry.formats.gguf.lora import has_gains
    from runner.backends.backend import Row
    from runner.backends.llamacpp.loader import load

    tokens = list(range(3, 23))
    for kernels in (True,) if has_gains(read_header(path)) else (True, False):
        backend = load(_plan(EMBER, native_kernels=kernels), lambda share: None).backend
        backend.load_adapter("mutant", path)
        rows = [Row(0, tokens, 0, adapters=(("mutant", 1.0),))]
        if backend.mixes_adapters:
            rows.append(Row(1, tokens, 0))
        backend.step(rows)
        backend.unload_adapter("mutant")
        backend.close()


def _encode(vision: Any) -> None:
    import numpy as np

    from runner.backends.backend import BackendError, DecodedAudio, DecodedImage

    sees = DecodedImage(48, 32, bytes(48 * 32 * 3))
    media = sees if vision.sees else DecodedAudio(np.zeros(8000, np.int16))
    for part in vision.read(media):
        if not isinstance(part, list):
            with contextlib.suppress(
                BackendError
            ):  # its numbers are not finite: the weights' fault
                vision.encode(part)


def model_target(path: Path, tokens: int | None) -> Target:
    """A whole model; tokens: of its cut vocabulary, with zeros for weights."""
    from modelfile.build import check_header
    from registry.formats.gguf import read_header

    sound = read_gguf(path, tokens=tokens, weights=tokens is None)
    return Target(mutants(sound), lambda path: check_header(read_header(path)), run_model)


def projector_target(folder: Path, kind: str = "idefics3") -> Target:
    """A tiny projector, loaded with its model."""
    from modelfile.projectors import check_projector
    from registry.formats.gguf import read_header
    from tests.vision_files import AUDIO_KINDS, write_audio_model, write_vision_model

    write = write_audio_model if kind in AUDIO_KINDS else write_vision_model
    files = write(folder, kind)
    base = read_header(files.model)
    return Target(
        mutants(read_gguf(files.projector, weights=True)),
        lambda path: check_projector(read_header(path), base),
        lambda path: run_model(files.model, projector=str(path)),
    )


def adapter_target(folder: Path, *, gains: bool) -> Target:
    """A LoRA adapter of ember. gains: of DoRA."""
    from modelfile.adapters import check_adapter
    from registry.formats.gguf import read_header
    from tests.gguf_files import Tensor, f32, text

    entries = {
        "general.architecture": text(b"llama"),
        "general.type": text(b"adapter"),
        "general.name": text(b"lora"),
        "adapter.type": text(b"lora"),
        "adapter.lora.alpha": f32(16.0),
    }
    tensors = []
    for block in range(6):
        for name, wide, high in (("attn_q", 256, 256), ("attn_v", 256, 128), ("ffn_up", 256, 768)):
            tensors.append(Tensor(f"blk.{block}.{name}.weight.lora_a", (wide, 8)))
            tensors.append(Tensor(f"blk.{block}.{name}.weight.lora_b", (8, high)))
            if gains:
                tensors.append(Tensor(f"blk.{block}.{name}.weight.lora_gain", (high,)))
    base = read_header(EMBER)
    return Target(
        mutants(Gguf(list(entries.items()), tensors)),
        lambda path: check_adapter(read_header(path), base),
        run_adapter,
    )


def checkpoint_target(folder: Path) -> Target:
    """A folder of safetensors, converted as create does it."""
    from modelfile.build import check_header
    from modelfile.convert.conversion import convert
    from registry.formats.gguf import read_header
    from tests.attack.checkpoint_mutations import mutate as mutate_folder
    from tests.checkpoint_files import write_checkpoint

    sound = folder / "sound"
    sound.mkdir()
    write_checkpoint(sound)

    def check(path: Path) -> None:
        files = {file.name: file for file in path.iterdir()}
        convert(files, path / "converted.gguf", "F16", lambda *_: None)
        check_header(read_header(path / "converted.gguf"))

    return Target(
        lambda seed, number, path: mutate_folder(sound, seed, number, path),
        check,
        lambda path: run_model(path / "converted.gguf"),
    )


def targets(kind: str, folder: Path) -> list[Target]:
    """What a kind's mutants are made of, in turns."""
    if kind == "ember":
        return [model_target(EMBER, None)]
    if kind == "smollm2":
        return [model_target(SMOLLM2, CUT_TOKENS)]
    if kind == "safetensors":
        return [checkpoint_target(folder)]
    if kind == "adapter":
        return [adapter_target(folder, gains=gains) for gains in (False, True)]
    made = []
    for name in ("ultravox", "qwen2a") if kind == "audio" else ("idefics3", "gemma3", "qwen2vl"):
        (folder / name).mkdir()
        made.append(projector_target(folder / name, name))
    return made


def run_trials(made: list[Target], seed: int, numbers: Iterator[int], folder: Path) -> Counts:
    """Every number's mutant."""
    counts, path = Counts(), folder / "mutant.gguf"
    for number in numbers:
        target = made[number % len(made)]
        what = target.mutate(seed, number, path)
        try:
            outcome = trial(target, path)
        except AssertionError as error:
            outcome = f"fault: {error}"
        counts.outcomes[outcome.partition(":")[0]] += 1
        if not outcome.startswith(("loaded", "refused")):
            counts.faults.append(f"{number}: {what} | {outcome}")
    return counts


def prepare() -> None:
    """Load llama.cpp into this process, whose children have it then."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # by a debugger, where there is one: seconds
    from runner.backends.host_sampling.library import start_library
    from runner.backends.llamacpp import loader
    from runner.backends.llamacpp.vision import encoder

    assert loader
    assert encoder
    start_library()


def main() -> int:
    """Run, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.model_trials")
    kinds = ("ember", "smollm2", "projector", "audio", "adapter", "safetensors")
    parser.add_argument("--kind", action="append", choices=kinds)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=40, help="how many are shown")
    given = parser.parse_args()
    prepare()
    crashed = 0
    for kind in given.kind or kinds:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            made = targets(kind, folder)
            numbers = iter(range(given.first, given.first + given.count))
            counts = run_trials(made, given.seed, numbers, folder)
        finally:
            shutil.rmtree(folder)
        print(kind, json.dumps(counts.outcomes))
        print("\n".join(counts.faults[: given.faults]))
        crashed += counts.outcomes["crashed"]
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())
