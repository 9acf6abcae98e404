"""Spoken samples as the bytes of a file, which grow as the samples come. By PyAV; knows no text."""

from __future__ import annotations

import struct
from typing import Any, Final

from runner.speech import AudioFormat

PCM_RATE: Final = 24_000  # of raw samples, whose rate no header tells: clients of OpenAI expect it
_OPUS_RATE: Final = 48_000
_CONTAINERS: Final = {
    "mp3": ("mp3", "libmp3lame", {"write_xing": "0", "id3v2_version": "0"}),
    "opus": ("ogg", "libopus", {"page_duration": "200000"}),  # microseconds
    "aac": ("adts", "aac", {}),
    "flac": ("flac", "flac", {}),
}
_ENDLESS: Final = 0xFFFFFFFF  # the length in a header that is sent before the end is known


class AudioEncoder:
    """One file, mono, of int16 samples."""

    def __init__(self, format: AudioFormat, sample_rate: int) -> None:
        import av
        from av.audio.resampler import AudioResampler

        self._av = av
        self._sample_rate = sample_rate
        self._sink = _Sink()
        self._container: Any = None
        self._resampler: Any = None
        if format == "pcm":
            self._resampler = AudioResampler("s16", "mono", PCM_RATE)
        elif format == "wav":
            self._sink.write(_wav_header(sample_rate))
        else:
            name, codec, options = _CONTAINERS[format]
            self._container = av.open(self._sink, "w", format=name, options=options)
            rate = _OPUS_RATE if format == "opus" else sample_rate
            self._stream: Any = self._container.add_stream(codec, rate=rate, layout="mono")

    def add(self, samples: Any) -> bytes:
        """What the file has more with samples: [samples], int16."""
        if self._container is None and self._resampler is None:
            self._sink.write(samples.tobytes())
        else:
            frame = self._av.AudioFrame.from_ndarray(
                samples.reshape(1, -1), format="s16", layout="mono"
            )
            frame.sample_rate = self._sample_rate
            self._feed(frame)
        return self._sink.take()

    def finish(self) -> bytes:
        """The rest of the file."""
        if self._container is not None or self._resampler is not None:
            self._feed(None)
        if self._container is not None:
            self._container.close()
        return self._sink.take()

    def _feed(self, frame: Any) -> None:
        if self._container is None:
            for part in self._resampler.resample(frame):
                self._sink.write(part.to_ndarray().tobytes())
        else:
            for packet in self._stream.encode(frame):
                self._container.mux(packet)


class _Sink:
    """Takes what a muxer writes; it cannot go back."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


def _wav_header(rate: int) -> bytes:
    """RIFF with a length that says that it is not known."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", _ENDLESS, b"WAVE")
        + form
        + struct.pack("<4sI", b"data", _ENDLESS)
    )
