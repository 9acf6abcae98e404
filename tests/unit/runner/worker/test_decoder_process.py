from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("PIL")

from runner.errors import InvalidRequest
from runner.worker.decoder_process import DecoderProcess
from runner.worker.image_decoder import decode
from tests.vision_files import png


@pytest.fixture
def decoder() -> Iterator[DecoderProcess]:
    decoder = DecoderProcess("image")
    yield decoder
    decoder.close()


def pid(decoder: DecoderProcess) -> int:
    assert decoder._process is not None
    return decoder._process.pid


def test_a_picture_is_what_it_is_in_this_process(decoder: DecoderProcess) -> None:
    for data in (png(40, 30), png(7, 300)):
        assert vars_of(decoder.image(data)) == vars_of(decode(data))


def vars_of(image: object) -> tuple[object, ...]:
    return tuple(getattr(image, name) for name in ("width", "height", "rgb"))


def test_one_process_decodes_all(decoder: DecoderProcess) -> None:
    decoder.image(png(4, 4))
    first = pid(decoder)
    with pytest.raises(InvalidRequest, match="cannot be decoded") as refusal:
        decoder.image(b"GIF89a")
    assert refusal.value.details["param"] == "messages"
    decoder.image(png(4, 5))
    assert pid(decoder) == first


def test_another_follows_one_that_has_ended(decoder: DecoderProcess) -> None:
    decoder.image(png(4, 4))
    first = pid(decoder)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert decoder.image(png(4, 5)).height == 5
    assert pid(decoder) != first
