"""Which files FROM, ADAPTER and DRAFT name: a GGUF, the parts of one, a folder of safetensors, or
a speech model: a folder of CTranslate2, or a voice of Piper.

Owns the refusals that save reading gigabytes: missing parts, pickles, links that leave the folder.
The content of the files is checked where the model is built.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from cli.errors import CliError
from cli.terminal import status
from modelfile.speech.ctranslate2_file import is_model_file
from modelfile.speech.whisper import FILES as WHISPER_FILES

MAX_FILES = 4096
_START_BYTES = 9  # the length of a header of safetensors, and its brace
_MAX_INDEX_BYTES = 64 << 20
_PATH_STARTS = ("/", "./", "../", "~", ".\\", "..\\")
_PATH_ENDS = (".gguf", ".onnx", ".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_PICKLE_ENDS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_PICKLE_STARTS = (*(bytes((0x80, protocol)) for protocol in range(1, 6)), b"PK\x03\x04")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>\.\w+)", re.ASCII)
_TENSORS = ("model*.safetensors", "adapter*.safetensors", "consolidated*.safetensors")
_BESIDE = (
    *("*.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt"),
    *("merges.txt", "chat_template.jinja", "additional_chat_templates/*.jinja"),
    *("*_Pooling/config.json", "README.md"),
)
_PROJECTOR = re.compile(r"^mmproj|[-._]mmproj[-._]", re.IGNORECASE)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_INDEX = "model.safetensors.index.json"
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder; give the path of a file in it"),
    (stat.S_ISFIFO, "a named pipe, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
)


def find(text: str, folder: Path, instruction: str = "FROM") -> dict[str, Path] | None:
    """The files that text names, seen from the Modelfile's folder, by the names that they have in
    the model; None when it names a model instead.

    Raises CliError when there is none, when they are no model files, or when a path without ".."
    leaves its folder through a link: the Modelfile may be another person's.
    """
    given = Path(text).expanduser()
    path = folder / given
    if not _is_path(text, path, instruction):
        return None
    if not path.exists():
        raise CliError(f"{path}, named by {instruction}, does not exist")
    own_words = given.is_absolute() or ".." in given.parts
    if path.is_dir():
        return _of_folder(path, path if own_words else folder)
    require_file(path)
    if path.name.lower().endswith(".onnx"):
        return _voice(path, None if own_words else folder)
    names = _parts(path)
    for part in names.values():
        if not own_words:
            _check_inside(part, folder)
        check_start(part)
    if path.name.lower().endswith(".safetensors"):
        raise CliError(f"{path} is one file of a model; give the path of its folder instead")
    return names


def has_model(folder: Path) -> bool:
    """Whether a folder holds what FROM could name."""
    return bool(_matching(folder, (*_TENSORS, "*.gguf"))) or _is_whisper(folder)


def model_at(path: Path) -> str | None:
    """What to write for a path that is a model itself: that of a GGUF, or of the folder of
    safetensors; None for another file, a folder without a model, and where nothing is."""
    start = b""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
    if _is_safetensors(path, start):
        path = path.parent
    elif start[:4] != b"GGUF" and not (path.is_dir() and has_model(path)):
        return None
    is_clear = path.is_absolute() or path == Path() or ".." in path.parts
    return str(path) if is_clear else f"./{path}"


def is_whole_gguf(files: Iterable[str]) -> bool:
    """Whether files with these names need no merging and no conversion."""
    return all(name.lower().endswith(".gguf") and _PART.fullmatch(name) is None for name in files)


def require_file(path: Path) -> None:
    """Raises CliError unless path is a regular file, FileNotFoundError when it does not exist."""
    mode = path.stat().st_mode
    for is_kind, what in _KINDS:
        if is_kind(mode):
            raise CliError(f"{path} is {what}")


def check_start(path: Path) -> None:
    """Refuse by its first bytes what is no model file. Raises CliError."""
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    if _is_safetensors(path, start):
        return
    named = path.name.lower().endswith(_PICKLE_ENDS) and start[:4] != b"GGUF"
    if named or start.startswith(_PICKLE_STARTS):
        raise CliError(
            f"{path} is a pickle file, which can run code when opened, and is not supported. Get "
            "the model as safetensors or GGUF"
        )
    if start[:4] != b"GGUF":
        raise CliError(
            f"{path} is not a GGUF file: it begins with {start[:4]!r}, not {b'GGUF'!r}"
            if start
            else f"{path} is empty"
        )


def _is_safetensors(path: Path, start: bytes) -> bool:
    return path.name.lower().endswith(".safetensors") and start[8:] == b"{"


def begins_as_path(text: str) -> bool:
    """Whether text is written as a path: no name of a model begins so."""
    return text.startswith(_PATH_STARTS) or text in (".", "..")


def _is_path(text: str, path: Path, instruction: str) -> bool:
    if begins_as_path(text) or instruction == "ADAPTER":
        return True
    if "://" in text:
        return False
    if path.is_dir():  # a name may be that of a folder that has nothing to do with it
        return any(_matching(path, (*_TENSORS, "*.gguf", "*.onnx", *_ends(_PICKLE_ENDS))))
    return text.lower().endswith(_PATH_ENDS) or path.is_file()


def _parts(path: Path) -> dict[str, Path]:
    """The file, or all parts when it is one of several. Raises CliError naming a missing part."""
    found = _PART.fullmatch(path.name)
    if found is None or found["end"].lower() != ".gguf":
        return {path.name: path}
    count = int(found["count"])
    if not 0 < int(found["number"]) <= count <= MAX_FILES:
        raise CliError(
            f"{path.name}: there is no part {found['number']} of {found['count']}; rename the file"
        )
    names = [f"{found['stem']}-{n:05}-of-{count:05}{found['end']}" for n in range(1, count + 1)]
    for name in names:
        if not path.with_name(name).is_file():
            raise CliError(f"{name} is missing: {path.name} needs all {count} parts beside it")
    return {name: path.with_name(name) for name in names}


def _of_folder(path: Path, border: Path) -> dict[str, Path]:
    """The model files of a folder. border: what no link may leave."""
    if _is_whisper(path):
        own = (path / name for name in WHISPER_FILES)
        return {file.name: _checked(file, border, False) for file in own if file.exists()}
    voices = _matching(path, ("*.onnx",))
    if len(voices) == 1:
        return _voice(voices[0], border)
    tensors = next((found for p in _TENSORS if (found := _matching(path, (p,)))), [])
    tensors = tensors or _matching(path, ("*.safetensors",))
    if tensors:
        _check_shards(path, tensors)
        files = [*tensors, *_matching(path, _BESIDE)]
        if len(files) > MAX_FILES:
            raise CliError(f"{path} has {len(files)} files; a model may have at most {MAX_FILES}")
        return {
            file.relative_to(path).as_posix(): _checked(file, border, file in tensors)
            for file in files
        }
    ggufs = [file for file in _matching(path, ("*.gguf",)) if _is_first(file)]
    projectors = [file for file in ggufs if _PROJECTOR.search(file.name)]
    models = [file for file in ggufs if file not in projectors] or projectors
    if len(models) == 1:
        parts = _parts(models[0])
        if models != projectors:
            parts |= _one_projector(path, projectors)
        return {name: _checked(part, border, True) for name, part in parts.items()}
    if models:
        names = ", ".join(file.name for file in models[:5])
        raise CliError(f"{path} contains several models ({names}); give the path of one of them")
    for pickle in _matching(path, _ends(_PICKLE_ENDS)):
        check_start(pickle)
    raise CliError(f"{path} contains no model: no safetensors and no GGUF file")


def _is_whisper(folder: Path) -> bool:
    """Whether a folder holds Whisper as CTranslate2 keeps it."""
    path = folder / WHISPER_FILES[0]
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_model_file(file.read(_START_BYTES))


def _voice(path: Path, border: Path | None) -> dict[str, Path]:
    """A voice of Piper and the JSON beside it. border: what no link may leave. Raises CliError."""
    beside = path.with_name(f"{path.name}.json")
    if not beside.is_file():
        raise CliError(f"{beside} is missing: a Piper voice has it beside its .onnx file")
    for file in (path, beside):
        require_file(file)
        if border is not None:
            _check_inside(file, border)
    return {file.name: file for file in (path, beside)}


def _one_projector(folder: Path, projectors: list[Path]) -> dict[str, Path]:
    """The projector for images beside a model, if there is one. Raises CliError for several."""
    if len(projectors) > 1:
        names = ", ".join(file.name for file in projectors[:5])
        raise CliError(
            f"{folder} contains several multimodal projectors ({names}); name the model and one "
            "projector, each with its own FROM"
        )
    for file in projectors:
        status(f"{folder}: with {file.name}, the multimodal projector")
    return {file.name: file for file in projectors}


def _is_first(path: Path) -> bool:
    found = _PART.fullmatch(path.name)
    return found is None or int(found["number"]) <= 1


def _check_shards(path: Path, tensors: Iterable[Path]) -> None:
    """Raises CliError naming a shard that the index or a sibling's name promises."""
    names = {file.name for file in tensors}
    wanted: set[str] = set()
    for file in tensors:
        found = _PART.fullmatch(file.name)
        count = int(found["count"]) if found is not None else 0
        if found is not None and count <= MAX_FILES:
            stem, end = found["stem"], found["end"]
            wanted |= {f"{stem}-{n:05}-of-{count:05}{end}" for n in range(1, count + 1)}
    wanted |= _indexed(path / _INDEX)
    missing = sorted(wanted - names)
    if missing:
        raise CliError(f"{path / missing[0]} is missing: the model has {len(wanted)} shards")


def _indexed(index: Path) -> set[str]:
    try:
        if index.stat().st_size > _MAX_INDEX_BYTES:
            raise CliError(f"{index} is larger than {_MAX_INDEX_BYTES} bytes")
        weights = json.loads(index.read_bytes())["weight_map"]
        return {str(name) for name in weights.values()}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CliError(f"{index} is not a safetensors index") from None


def _checked(path: Path, border: Path, is_weights: bool) -> Path:
    require_file(path)
    _check_inside(path, border)
    if is_weights:
        check_start(path)
    return path


def _check_inside(path: Path, border: Path) -> None:
    target = path.resolve()
    if target.is_relative_to(border.resolve()) or _is_of_cache(path, target):
        return
    raise CliError(
        f"{path} is a link to {target}, outside the folder. If you mean that file, write its own "
        "path"
    )


def _is_of_cache(path: Path, target: Path) -> bool:
    """Whether path is a link as Hugging Face's cache has them: of <cache>/models--<name>/snapshots/
    <revision> to that repository's blobs, or to <cache>/blobs/<2 digits>/, which all share."""
    folder = path.parent.resolve()
    for snapshot in (folder, *folder.parents):
        repository = snapshot.parent.parent
        if snapshot.parent.name == "snapshots" and "--" in repository.name:
            shared = repository.parent / "blobs"
            is_shared = target.parent.parent == shared and _HASH.fullmatch(target.name) is not None
            return is_shared or target.parent == repository / "blobs"
    return False


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted(
        file
        for pattern in patterns
        for file in folder.glob(pattern)
        if not file.name.startswith(".") and not file.is_dir()
    )


def _ends(ends: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"*{end}" for end in ends)
