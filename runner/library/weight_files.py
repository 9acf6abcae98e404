"""What the files are that a model shall be made of, by their names and first bytes.

Owns the refusals: of pickles, which run code when they are read, and of mixtures.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import PurePosixPath

from modelfile.errors import BuildError
from modelfile.projectors import is_projector
from modelfile.speech.ctranslate2_file import is_model_file
from modelfile.speech.detection import is_speech
from registry.bundle import model_header
from registry.digest import Digest
from registry.errors import InvalidGguf
from registry.store import Store

MAX_FILES = 4096
_MAX_NAME_CHARACTERS = 1024
_PICKLE_ENDS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_PICKLE_STARTS = (*(bytes((0x80, protocol)) for protocol in range(1, 6)), b"PK\x03\x04")
_START_BYTES = 9  # the length of a header of safetensors, and its brace


class WeightsFormat(enum.Enum):
    """GGUF: one file. PARTS: of a split GGUF. SAFETENSORS: a folder of Hugging Face's layout.
    SPEECH: a folder of CTranslate2, or a voice and its JSON."""

    GGUF = "one GGUF"
    PARTS = "parts of a GGUF"
    SAFETENSORS = "safetensors"
    SPEECH = "a speech model"


def check_names(files: Mapping[str, object]) -> None:
    """Refuse names that are no paths inside a folder. Raises BuildError."""
    if len(files) > MAX_FILES:
        raise BuildError(f"{len(files)} files; a model may have at most {MAX_FILES}")
    for name in files:
        path = PurePosixPath(name)
        inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
        if not inside or len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
            raise BuildError(f"the file name {name[:80]!r} points outside its folder")


def weights_format(store: Store, files: Mapping[str, Digest]) -> WeightsFormat:
    """What kind of model the files make. Raises BuildError for pickles, mixtures and files
    without weights, BlobMissing."""
    starts = {name: _start(store, digest) for name, digest in files.items()}
    for name, start in starts.items():
        _refuse_pickle(name, start)
    if is_speech(files):
        return WeightsFormat.SPEECH
    gguf = [name for name, start in starts.items() if start[:4] == b"GGUF"]
    tensors = [name for name in starts if name.lower().endswith(".safetensors")]
    if gguf and len(gguf) != len(files):
        other = next(name for name in sorted(files) if name not in gguf)
        raise BuildError(f"{gguf[0]!r} is a GGUF file and {other!r} is not; use only one kind")
    if gguf or (len(files) == 1 and not tensors):
        return WeightsFormat.GGUF if len(files) == 1 else WeightsFormat.PARTS
    if not tensors:
        names = ", ".join(sorted(files)[:5])
        raise BuildError(f"no weights found: none of {names} is a GGUF or safetensors file")
    return WeightsFormat.SAFETENSORS


def without_projector(
    store: Store, files: Mapping[str, Digest]
) -> tuple[dict[str, Digest], Digest | None]:
    """The files of the model itself, and the one that is its projector for images. Raises
    BuildError for two of these, BlobMissing."""
    found = {name: digest for name, digest in files.items() if _is_projector(store, digest)}
    if len(found) > 1:
        names = ", ".join(sorted(found)[:5])
        raise BuildError(f"{len(found)} projectors ({names}); use only one")
    rest = {name: digest for name, digest in files.items() if name not in found}
    return rest, next(iter(found.values()), None)


def file_sizes(store: Store, files: Mapping[str, Digest]) -> dict[str, int]:
    """The bytes of each file. Raises BlobMissing."""
    return {name: store.blob_size(digest) for name, digest in files.items()}


def _is_projector(store: Store, digest: Digest) -> bool:
    """False for a file that is none, or damaged: what is wrong with it is told where it is used."""
    if _start(store, digest)[:4] != b"GGUF":
        return False
    try:
        return is_projector(model_header(store.blob_path(digest)))
    except InvalidGguf:
        return False


def _start(store: Store, digest: Digest) -> bytes:
    with store.blob_path(digest).open("rb") as file:
        return file.read(_START_BYTES)


def _refuse_pickle(name: str, start: bytes) -> None:
    known = start[:4] == b"GGUF" or is_model_file(start)
    named = name.lower().endswith(_PICKLE_ENDS) and not known
    is_safetensors = start[8:] == b"{" and name.lower().endswith(".safetensors")
    if named or (start.startswith(_PICKLE_STARTS) and not is_safetensors):
        raise BuildError(
            f"{name!r} is a pickle, which runs code when it is read, and is not opened; get the"
            " model as safetensors or GGUF"
        )
