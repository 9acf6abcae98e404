"""Images decoded in a process of their own: what a file leads a decoder to, in time, memory or a
crash, costs the request that sent it an error and nobody else anything.

The process is started with the first image, decodes one after the other and ends when it has been
idle. `python -I -m runner.worker.image_process` is it: a length and a file on stdin, a head and
pixels or an error on stdout. Knows no formats and no model.
"""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Final

from runner.backends.backend import DecodedImage
from runner.child_process import child_options, exit_status
from runner.errors import HearthError, InternalError, InvalidRequest, from_wire
from runner.worker.image_decoder import decode
from runner.worker.isolation import isolate

LIMIT_S: Final = 10.0  # of one image, the start of the process included; 50 million pixels take 3
MEMORY_BYTES: Final = 2 << 30  # of addresses; 50 million pixels with transparency take 1.4 GB
IDLE_S: Final = 60.0

_MAX_ERROR_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(">?IIQ")  # decoded?, width, height, bytes that follow


class ImageProcess:
    """The process, as it is needed. decode is for one thread at a time."""

    def __init__(self, limit_s: float = LIMIT_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def decode(self, data: bytes) -> DecodedImage:
        """See runner.worker.image_decoder.decode. Raises InvalidRequest also for what takes too
        long or ends the process, InternalError where none can be started."""
        process = self._running()
        timed_out = threading.Event()

        def end() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(self._limit_s, end)
        timer.start()
        try:
            return _ask(process, data)
        except (EOFError, OSError):
            self.close()
            how = f"more than {self._limit_s:g} s" if timed_out.is_set() else "too much memory"
            raise InvalidRequest(
                f"an image of {len(data)} bytes cannot be decoded: it took {how} "
                f"({exit_status(process.returncode)}); send it smaller, or saved anew",
                param="messages",
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
                [sys.executable, "-I", "-m", __name__, str(self._memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                **child_options(),
            )
        except OSError as error:
            raise InternalError(f"no process could be started for images: {error}") from error
        return self._process


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it says nothing more: it closes its end before its exit can be seen."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def _ask(process: subprocess.Popen[bytes], data: bytes) -> DecodedImage:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_LENGTH.pack(len(data)) + data)
    process.stdin.flush()
    decoded, width, height, size = _HEAD.unpack(_exactly(process.stdout, _HEAD.size))
    if size != width * height * 3 if decoded else size > _MAX_ERROR_BYTES:
        raise EOFError  # it is no longer itself
    body = _exactly(process.stdout, size)
    if not decoded:
        raise from_wire(json.loads(body))
    return DecodedImage(width, height, body)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _answer(data: bytes) -> tuple[bytes, bytes]:
    try:
        image = decode(data)
    except HearthError as error:
        body = json.dumps(error.to_wire()).encode()
        return _HEAD.pack(False, 0, 0, len(body)), body
    return _HEAD.pack(True, image.width, image.height, len(image.rgb)), image.rgb


def _serve(memory_bytes: int) -> None:
    isolate()
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(0, "rb") as questions, os.fdopen(os.dup(1), "wb") as answers:
        while select.select([questions], [], [], IDLE_S)[0]:
            head = questions.read(_LENGTH.size)
            if not head:
                return
            for part in _answer(questions.read(_LENGTH.unpack(head)[0])):
                answers.write(part)
            answers.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
