"""Images and recordings decoded in a process of their own: what a file leads a decoder to, in time,
memory or a crash, costs the request that sent it an error and nobody else anything.

The process is started with the first file, decodes one after the other and ends when it has been
idle. `python -I -m runner.worker.decoder_process` is it: a length and a file on stdin, a head and
pixels, samples or an error on stdout. Knows no formats and no model.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any, Final, Literal

from runner.backends.backend import DecodedImage
from runner.child_process import child_options, exit_status
from runner.errors import HearthError, InternalError, InvalidRequest, from_wire
from runner.pipes import is_readable
from runner.process_limits import set_limits
from runner.worker.isolation import isolate

Kind = Literal["image", "audio"]
LIMIT_S: Final = 10.0  # of one image, the start of the process included; 50 million pixels take 3
AUDIO_LIMIT_S: Final = 60.0  # of one recording; an hour takes 5
MEMORY_BYTES: Final = 2 << 30  # of addresses; 50 million pixels with transparency take 1.4 GB
IDLE_S: Final = 60.0

_MAX_ERROR_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(">?IIQ")  # decoded?, width, height (samples, 1), bytes that follow
_WORDS: Final[dict[Kind, tuple[str, str, int]]] = {  # for errors; the bytes of a pixel or sample
    "image": ("an image", "messages", 3),
    "audio": ("a recording", "file", 2),
}


class DecoderProcess:
    """The process for one kind of file, as it is needed. It is used by one thread and ends
    with it."""

    def __init__(
        self,
        kind: Kind,
        limit_s: float | None = None,
        memory_bytes: int = MEMORY_BYTES,
        max_audio_s: int = 0,
    ) -> None:
        self._kind: Kind = kind
        self._limit_s = limit_s or (LIMIT_S if kind == "image" else AUDIO_LIMIT_S)
        self._bounds = (memory_bytes, max_audio_s)
        self._process: subprocess.Popen[bytes] | None = None

    def image(self, data: bytes) -> DecodedImage:
        """See runner.worker.image_decoder.decode. Raises InvalidRequest also for what takes too
        long or ends the process, InternalError where none can be started."""
        return DecodedImage(*self._decode(data))

    def audio(self, data: bytes) -> Any:
        """The samples: [samples], int16. See runner.worker.audio_decoder.decode; raises as
        image."""
        import numpy as np

        return np.frombuffer(self._decode(data)[2], np.int16)

    def _decode(self, data: bytes) -> tuple[int, int, bytes]:
        process = self._running()
        timed_out = threading.Event()

        def end() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(self._limit_s, end)
        timer.start()
        try:
            return _ask(process, data, _WORDS[self._kind][2])
        except (EOFError, OSError):
            self.close()
            how = f"more than {self._limit_s:g} s" if timed_out.is_set() else "too much memory"
            what, param, _ = _WORDS[self._kind]
            raise InvalidRequest(
                f"{what} of {len(data)} bytes cannot be decoded: it took {how} "
                f"({exit_status(process.returncode)}); send it smaller, or saved anew",
                param=param,
            ) from None
        except HearthError:
            raise
        except BaseException:  # between a question and its answer
            self.close()
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        """One that has not ended for want of work."""
        process = self._process
        if process is not None and process.poll() is None and not _ended(process):
            return process
        self.close()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", __name__, self._kind, *map(str, self._bounds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                **child_options(),
            )
        except OSError as error:
            raise InternalError(f"no process could be started for decoding: {error}") from error
        return self._process


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it says nothing more: it closes its end before its exit can be seen."""
    assert process.stdout is not None
    return is_readable(process.stdout, 0)


def _ask(process: subprocess.Popen[bytes], data: bytes, width_bytes: int) -> tuple[int, int, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_LENGTH.pack(len(data)) + data)
    process.stdin.flush()
    decoded, width, height, size = _HEAD.unpack(_exactly(process.stdout, _HEAD.size))
    if size != width * height * width_bytes if decoded else size > _MAX_ERROR_BYTES:
        raise EOFError  # it is no longer itself
    body = _exactly(process.stdout, size)
    if not decoded:
        raise from_wire(json.loads(body))
    return width, height, body


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _answer(kind: str, data: bytes, max_audio_s: int) -> tuple[bytes, bytes]:
    try:
        width, height, body = _decoded(kind, data, max_audio_s)
    except HearthError as error:
        body = json.dumps(error.to_wire()).encode()
        return _HEAD.pack(False, 0, 0, len(body)), body
    return _HEAD.pack(True, width, height, len(body)), body


def _decoded(kind: str, data: bytes, max_audio_s: int) -> tuple[int, int, bytes]:
    if kind == "audio":
        from runner.worker import audio_decoder

        samples = audio_decoder.decode(data, max_audio_s)
        return len(samples) // audio_decoder.SAMPLE_BYTES, 1, samples
    from runner.worker import image_decoder

    image = image_decoder.decode(data)
    return image.width, image.height, image.rgb


def _serve(kind: str, memory_bytes: int, max_audio_s: int) -> None:
    isolate()
    set_limits("AS", memory_bytes, memory_bytes)
    with os.fdopen(0, "rb") as questions, os.fdopen(os.dup(1), "wb") as answers:
        while is_readable(questions, IDLE_S):
            head = questions.read(_LENGTH.size)
            if not head:
                return
            data = questions.read(_LENGTH.unpack(head)[0])
            for part in _answer(kind, data, max_audio_s):
                answers.write(part)
            answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], *map(int, sys.argv[2:]))
