"""Picture files that cost far more than their size says cost their request a clear 400."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from modelfile.build import build
from modelfile.description import Description
from registry.names import Name
from registry.store import Store
from runner.errors import InvalidRequest
from runner.worker.decoder_process import DecoderProcess
from tests.attack.image_files import file_of, inflated, moving_gif, png_of, scans_of_jpeg
from tests.conftest import RunningDaemon, running_daemon
from tests.vision_files import png, write_vision_model

pillow: Any = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

MODEL = "seer"
_ICC = b"icc\0\0" + inflated(200)
REFUSED = {
    "a header of 65535 x 65535": (png_of(65535, 65535), "pixels"),
    "a side of 200 times the other": (png_of(30_000, 1), "one side"),
    "a PNG that ends early": (png(400, 400)[:-200], "cannot be decoded"),
    "a JPEG that ends early": (
        file_of(pillow.new("RGB", (400, 400), "red"), "JPEG")[:-300],
        "cannot be decoded",
    ),
    "a text of 200 MiB": (png_of(4, 4, (b"zTXt", b"a\0\0" + inflated(200))), "be decoded"),
    "TIFF": (b"II*\0" + bytes(100), "not PNG, JPEG"),
    "PostScript": (b"%!PS-Adobe-3.0\n" + bytes(100), "not PNG, JPEG"),
    "Photoshop": (b"8BPS\0\1" + bytes(100), "not PNG, JPEG"),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp("hearth")
    files = write_vision_model(tmp_path_factory.mktemp("files"), "idefics3")
    store = Store.open(home / "models")
    digests = []
    for path in (files.model, files.projector):
        with store.blob_writer() as writer:
            writer.write(path.read_bytes())
            digests.append(writer.commit()[0])
    list(
        build(store, Description(Name.parse(MODEL), files={"m": digests[0]}, projector=digests[1]))
    )
    store.close()
    with running_daemon(home) as running:
        yield running


def looked_at(client: httpx.Client, *files: bytes) -> httpx.Response:
    images = [base64.b64encode(data).decode() for data in files]
    body = {"model": MODEL, "prompt": "what?", "images": images, "stream": False,
            "options": {"num_predict": 1}}  # fmt: skip
    return client.post("/api/generate", json=body)


@pytest.mark.parametrize(("data", "words"), REFUSED.values(), ids=REFUSED)
def test_a_bomb_is_refused_with_its_reason(daemon: RunningDaemon, data: bytes, words: str) -> None:
    with daemon.client() as client:
        answer = looked_at(client, data)
        assert answer.status_code == 400, answer.text
        assert words in answer.text
        assert looked_at(client, png(40, 30)).status_code == 200


@pytest.mark.parametrize("frames", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_of_many_frames_only_the_first_is_read(daemon: RunningDaemon, frames: int) -> None:
    with daemon.client() as client:
        assert looked_at(client, moving_gif(frames)).status_code == 200


def test_another_chat_goes_on_while_images_are_decoded(daemon: RunningDaemon) -> None:
    """Three pictures of 9 million pixels take the decoder a while."""
    large = file_of(pillow.new("RGB", (3000, 3000), "red"), "PNG", compress_level=1)
    ended = threading.Event()

    def attack() -> None:
        with daemon.client() as client:
            looked_at(client, *(large + bytes(number) for number in range(3)))
        ended.set()

    thread = threading.Thread(target=attack)
    with daemon.client() as client:
        thread.start()
        meanwhile = 0
        while not ended.is_set():
            body = {"model": MODEL, "prompt": "a", "stream": False, "options": {"num_predict": 1}}
            assert client.post("/api/generate", json=body).status_code == 200
            meanwhile += not ended.is_set()
    thread.join()
    assert meanwhile >= 1


@pytest.mark.parametrize(
    ("limits", "bomb"),
    [
        ({"limit_s": 1.0}, lambda: scans_of_jpeg(pillow, 3000, 3000)),
        ({"memory_bytes": 400 << 20}, lambda: file_of(pillow.new("RGBA", (7000, 7000)), "PNG")),
    ],
    ids=["time", "memory"],
)
def test_what_takes_too_long_or_too_much_ends_with_its_process(limits: Any, bomb: Any) -> None:
    decoder = DecoderProcess("image", **limits)
    try:
        with pytest.raises(InvalidRequest, match="cannot be decoded"):
            decoder.image(bomb())
        assert decoder.image(png(9, 4)).width == 9
    finally:
        decoder.close()


def test_the_profile_of_a_picture_is_not_inflated_without_bound() -> None:
    decoder = DecoderProcess("image", memory_bytes=400 << 20)
    try:
        for _ in range(3):
            with pytest.raises(InvalidRequest, match="cannot be decoded"):
                decoder.image(png_of(4, 4, (b"iCCP", _ICC)))
    finally:
        decoder.close()
