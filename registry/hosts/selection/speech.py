"""Which files of a repository make a speech model: Whisper in CTranslate2's format, or a Piper
voice. Owns the reading of file names. Sends no requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.hosts.selection.variants import RepositoryFile, Variant

SPEECH: Final = "speech"
_WHISPER: Final = ("config.json", "tokenizer.json", "model.bin")
_VOCABULARIES: Final = ("vocabulary.json", "vocabulary.txt")
_PREPROCESSOR: Final = "preprocessor_config.json"
_VOICE: Final = ".onnx"


def speech_of(entries: Iterable[RepositoryFile]) -> Variant | None:
    """The files of the speech model at the top of a repository; None: there is none, or several
    voices."""
    files = {entry.path: entry for entry in entries if "/" not in entry.path}
    vocabulary = next((name for name in _VOCABULARIES if name in files), None)
    if vocabulary is not None and all(name in files for name in _WHISPER):
        names = [*_WHISPER[:-1], vocabulary, _PREPROCESSOR, _WHISPER[-1]]
        return Variant(SPEECH, tuple(files[name] for name in names if name in files))
    voices = [name for name in files if name.endswith(_VOICE) and f"{name}.json" in files]
    if len(voices) != 1:
        return None
    return Variant(SPEECH, (files[f"{voices[0]}.json"], files[voices[0]]))
