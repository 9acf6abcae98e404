"""Recordings as samples: whatever container and codec the FFmpeg libraries of PyAV read.

What comes in is untrusted: this runs in a process of its own (decoder_process.py), and the length
of what it gives is bounded as it grows. PyAV is optional: without it recordings are refused with
the way to install it.
"""

from __future__ import annotations

import io
from typing import Any, Final

from runner.errors import InvalidRequest, Unsupported

SAMPLE_RATE: Final = 16_000
SAMPLE_BYTES: Final = 2
_GROUPED_SAMPLES: Final = 500_000  # resampled at once
_RATES: Final = range(4_000, 768_001)
_MAX_CHANNELS: Final = 64
# Demuxers that read the file and nothing that it names.
_FORMATS: Final = (
    "aac,ac3,aiff,amr,asf,au,caf,flac,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,mpeg,mpegts,ogg,wav,"
    "w64"
)


def decode(data: bytes, max_s: int) -> bytes:
    """The first track that is sound: mono, 16-bit samples at SAMPLE_RATE. What is damaged on the
    way is left out. Raises InvalidRequest, also for more than max_s seconds, and Unsupported where
    PyAV is missing."""
    try:
        import av
        from av.audio.fifo import AudioFifo
        from av.audio.resampler import AudioResampler
    except ImportError:
        raise Unsupported(
            "recordings need PyAV, which is not installed: run ./install.sh --with-speech, or pip"
            " install 'hearth[speech]'",
            param="file",
        ) from None
    max_bytes, found = max_s * SAMPLE_RATE * SAMPLE_BYTES, bytearray()
    resampler, waiting = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE), AudioFifo()

    def take(frame: Any) -> None:
        for part in resampler.resample(frame):
            found.extend(part.to_ndarray().tobytes())
        if len(found) > max_bytes:
            raise InvalidRequest(
                f"the recording is longer than {max_s} s; send it in parts", param="file"
            )

    try:
        options = {"format_whitelist": _FORMATS, "protocol_whitelist": ""}
        with av.open(
            io.BytesIO(data), mode="r", metadata_errors="ignore", options=options
        ) as container:
            for frame in _frames(container, av.error.InvalidDataError):
                frame.pts = None  # gaps in time are not filled
                waiting.write(frame)
                if waiting.samples >= _GROUPED_SAMPLES:
                    take(waiting.read())
            if waiting.samples:
                take(waiting.read())
            take(None)
    except (InvalidRequest, MemoryError):
        raise
    except Exception as error:  # PyAV raises whatever a damaged file leads it to
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InvalidRequest(
            f"the recording of {len(data)} bytes cannot be decoded: {reason[:200]}; send flac, mp3,"
            " mp4, mpeg, mpga, m4a, ogg, wav or webm",
            param="file",
        ) from error
    return bytes(found)


def _frames(container: Any, damaged: type[Exception]) -> Any:
    if not container.streams.audio:
        raise ValueError("it has no sound")
    frames = container.decode(audio=0)
    while True:
        try:
            frame = next(frames)
            if frame.sample_rate not in _RATES or frame.layout.nb_channels > _MAX_CHANNELS:
                raise ValueError(
                    f"{frame.layout.nb_channels} channels at {frame.sample_rate} Hz are not taken"
                )
            yield frame
        except StopIteration:
            return
        except damaged:
            continue
