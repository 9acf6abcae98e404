"""Speech through the daemon, by OpenAI's own SDK and as clients send it, on models that are made
here: what is heard and said is theirs."""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

pytest.importorskip("faster_whisper")
pytest.importorskip("piper")

from tests.conftest import RunningDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon
from tests.speech_models import SAID, create, tone, write_voice, write_whisper

HEARD = SAID.strip()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("speech")
    with running_daemon(folder / "home", ("echo",)) as daemon, daemon.client() as http:
        create(http, "hears", *write_whisper(folder / "whisper").iterdir())
        voice = write_voice(folder / "voice", speakers=2)
        create(http, "speaks", voice, voice.with_name("voice.onnx.json"))
        yield daemon


@pytest.fixture
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def sdk(daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key="none") as client:
        yield client


def recording(seconds: float = 1.0) -> tuple[str, bytes]:
    return "sound.wav", tone(seconds)


def refused(reply: httpx.Response, status: int = 400) -> str:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def test_the_sdk_gets_a_transcript_in_every_format(sdk: openai.OpenAI) -> None:
    ask = sdk.audio.transcriptions.create
    assert ask(model="hears", file=recording()).text == HEARD
    assert ask(model="hears", file=recording(25)).text == HEARD
    assert ask(model="hears", file=recording(), response_format="text") == f"{HEARD}\n"
    srt = ask(model="hears", file=recording(), response_format="srt")
    assert srt == f"1\n00:00:00,000 --> 00:00:01,000\n{HEARD}\n\n"
    assert ask(model="hears", file=recording(), response_format="vtt").startswith("WEBVTT\n\n00:00")
    verbose = ask(
        model="hears",
        file=recording(),
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )
    assert (verbose.text, verbose.duration) == (HEARD, 1.0)
    assert verbose.segments is not None
    assert verbose.segments[0].end == 1.0


def test_the_sdk_streams_a_transcript(sdk: openai.OpenAI) -> None:
    events = list(sdk.audio.transcriptions.create(model="hears", file=recording(), stream=True))
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert events[0].delta == events[-1].text == HEARD  # type: ignore[union-attr]


def test_without_speech_nothing_is_heard(sdk: openai.OpenAI) -> None:
    found = sdk.audio.transcriptions.create(
        model="hears", file=recording(), chunking_strategy="auto"
    )
    assert found.text == ""


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav"])
def test_a_spoken_text_can_be_heard_in_every_format(sdk: openai.OpenAI, format: Any) -> None:
    spoken = sdk.audio.speech.create(
        model="speaks", voice="alloy", input="hello", response_format=format
    )
    sound = spoken.read()
    heard = sdk.audio.transcriptions.create(model="hears", file=(f"a.{format}", sound))
    assert heard.text.startswith(HEARD)


def test_speech_comes_as_bytes_or_as_events(sdk: openai.OpenAI, http: httpx.Client) -> None:
    with sdk.audio.speech.with_streaming_response.create(
        model="speaks", voice="speaker1", input="hello", response_format="pcm", speed=2.0
    ) as reply:
        assert reply.headers["content-type"] == "audio/pcm"
        assert len(np.frombuffer(reply.read(), np.int16)) > 20_000
    body = {"model": "speaks", "voice": "alloy", "input": "hello", "stream_format": "sse"}
    lines = http.post("/v1/audio/speech", json=body).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"


def test_a_long_text_is_spoken_to_its_end(http: httpx.Client) -> None:
    sizes = []
    for count in (1, 100):
        body = {"model": "speaks", "input": "hello there " * count, "response_format": "wav"}
        sizes.append(len(http.post("/v1/audio/speech", json=body).raise_for_status().content))
    assert sizes[1] > 80 * sizes[0] > 80 * 40_000


def test_what_a_model_is_not_for_is_refused_by_its_name(http: httpx.Client) -> None:
    form = {"file": recording()}
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    say = {"input": "hi", "voice": "alloy"}

    def hear(model: str, path: str = "transcriptions") -> str:
        return refused(http.post(f"/v1/audio/{path}", data={"model": model}, files=form))

    assert "echo does not transcribe" in hear("echo")
    assert "speaks does not transcribe" in hear("speaks")
    assert "English only" in hear("hears", "translations")
    assert "hears does not speak" in refused(
        http.post("/v1/audio/speech", json={"model": "hears", **say})
    )
    for model, place in (("hears", "transcriptions"), ("speaks", "speech")):
        for path, body in (
            ("/v1/chat/completions", chat),
            ("/api/chat", chat),
            ("/v1/embeddings", {"input": "hi"}),
            ("/tokenize", {"content": "hi"}),
        ):
            message = refused(http.post(path, json={"model": model, **body}))
            assert f"/v1/audio/{place}" in message


def test_sound_in_a_conversation_is_refused_with_the_way_to_go(http: httpx.Client) -> None:
    coded = base64.b64encode(tone(0.1)).decode()
    part = {"type": "input_audio", "input_audio": {"data": coded, "format": "wav"}}
    body = {"model": "echo", "messages": [{"role": "user", "content": [part]}]}
    message = refused(http.post("/v1/chat/completions", json=body))
    assert "echo cannot process recordings" in message
    assert "/v1/audio/transcriptions" in message


def test_values_that_the_model_does_not_know_are_refused(http: httpx.Client) -> None:
    def hear(**fields: str) -> str:
        reply = http.post(
            "/v1/audio/transcriptions", data={"model": "hears", **fields}, files={"file": sound}
        )
        return refused(reply)

    sound = recording()
    assert "language='xx'" in hear(language="xx")
    sound = ("a.wav", b"no sound at all")
    assert "cannot be decoded" in hear()
    sound = ("a.wav", bytes(26 * 1024 * 1024))
    reply = http.post("/v1/audio/transcriptions", data={"model": "hears"}, files={"file": sound})
    assert "25 MiB" in refused(reply, 413)
    body = {"model": "speaks", "voice": "nobody", "input": "hi"}
    assert "voice='nobody'" in refused(http.post("/v1/audio/speech", json=body))


def test_the_models_are_listed_with_what_they_can_do(http: httpx.Client) -> None:
    for model, capability, family in (
        ("hears", "transcription", "whisper"),
        ("speaks", "speech", "piper"),
    ):
        shown = http.post("/api/show", json={"model": model}).json()
        assert shown["capabilities"] == [capability]
        assert shown["details"]["family"] == family
        assert shown["memory"]["total_bytes"] > 100 << 20
    body = {"model": "speaks", "voice": "alloy", "input": "hi"}
    http.post("/v1/audio/speech", json=body).raise_for_status()
    (resident,) = [
        each for each in http.get("/api/ps").json()["models"] if each["name"] == "speaks:latest"
    ]
    assert (resident["state"], resident["stats"]["waiting"]) == ("loaded", 0)


def test_a_client_that_goes_ends_its_request(http: httpx.Client) -> None:
    body = {"model": "speaks", "voice": "alloy", "input": "hello there. " * 300}
    with http.stream("POST", "/v1/audio/speech", json=body) as reply:
        next(reply.iter_bytes())
    for _ in range(600):
        models = http.get("/api/ps").json()["models"]
        (resident,) = [each for each in models if each["name"] == "speaks:latest"]
        if resident["requests"] == 0 and resident["stats"]["running"] == 0:
            return
    pytest.fail("the request is still running")


def test_models_that_are_incomplete_or_quantized_again_are_refused(
    http: httpx.Client, tmp_path: Path
) -> None:
    folder = write_whisper(tmp_path / "whisper")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(AssertionError, match=r"tokenizer\.json is missing"):
        create(http, "broken", *folder.iterdir())
    voice = write_voice(tmp_path / "voice")
    with pytest.raises(AssertionError, match=r"voice\.onnx\.json is missing"):
        create(http, "broken", voice)
    reply = http.post("/api/create", json={"model": "q", "from": "hears", "quantize": "Q8_0"})
    assert "stays as it is" in reply.text


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.bin", None, "model.bin is damaged"),
        ("config.json", None, "config.json is not JSON"),
        ("config.json", "{}", "suppress_ids is not a list of tokens"),
        ("config.json", {"suppress_ids": [], "suppress_ids_begin": [10**6]}, "suppress_ids_begin"),
        ("config.json", {"lang_ids": [-1]}, "lang_ids is not a list of tokens"),
        ("config.json", {"alignment_heads": [[9, 0]]}, "not a list of layers and heads"),
        ("tokenizer.json", None, "tokenizer.json is not JSON"),
        ("tokenizer.json", "{}", "tokenizer.json has no model"),
        ("vocabulary.json", None, "vocabulary.json is not JSON"),
        ("vocabulary.json", '["a"]', "vocabulary.json is not a list of the model's"),
    ],
)
def test_a_folder_with_a_damaged_file_is_refused(
    http: httpx.Client, tmp_path: Path, name: str, content: Any, message: str
) -> None:
    folder = write_whisper(tmp_path / "whisper")
    if content is None:
        cut(folder / name)
    elif isinstance(content, str):
        (folder / name).write_text(content)
    else:
        whole = json.loads((folder / name).read_text()) | content
        (folder / name).write_text(json.dumps(whole))
    with pytest.raises(AssertionError, match=message):
        create(http, "broken", *folder.iterdir())


def test_folders_and_voices_of_this_machine_are_pulled(http: httpx.Client, tmp_path: Path) -> None:
    write_whisper(tmp_path / "tiny")
    write_voice(tmp_path / "hums")
    for folder, capability in (("tiny", "transcription"), ("hums", "speech")):
        body = {"model": str(tmp_path / folder), "stream": False}
        assert http.post("/api/pull", json=body).json()["status"] == "success"
        shown = http.post("/api/show", json={"model": f"local/{folder}"}).json()
        assert shown["capabilities"] == [capability]
        http.request("DELETE", "/api/delete", json={"model": f"local/{folder}"})


def test_a_whole_recording_may_be_an_empty_one(http: httpx.Client) -> None:
    empty = io.BytesIO(tone(0.0))
    reply = http.post(
        "/v1/audio/transcriptions", data={"model": "hears"}, files={"file": ("a.wav", empty)}
    )
    assert reply.status_code in (200, 400), reply.text


def test_the_command_writes_down_what_a_file_says(daemon: RunningDaemon, tmp_path: Path) -> None:
    env, file = of_daemon(daemon), tmp_path / 'a "recording".wav'
    file.write_bytes(tone())
    done = hearth(env, "transcribe", str(file))
    assert (done.returncode, done.stdout) == (0, f"{HEARD}\n"), done.stderr
    done = hearth(env, "transcribe", str(file), "--format", "srt", "--model", "hears")
    assert done.stdout.endswith(f"\n{HEARD}\n\n")
    done = hearth(env, "transcribe", str(file), "--language", "xx")
    assert done.returncode == 1
    assert "language='xx'" in done.stderr
    assert "does not exist" in hearth(env, "transcribe", str(tmp_path / "none.wav")).stderr


def test_the_command_speaks_into_a_file_or_to_a_player(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    env, file = of_daemon(daemon), tmp_path / "a.wav"
    done = hearth(env, "say", "hello", "-o", str(file))
    assert done.returncode == 0, done.stderr
    with wave.open(str(file)) as sound:
        assert sound.getnframes() == (file.stat().st_size - 44) // 2
    player = tmp_path / "bin" / "aplay"
    player.parent.mkdir()
    player.write_text(f'#!/bin/sh\ncp "$2" "{tmp_path}/played.wav"\n')
    player.chmod(0o755)
    done = hearth({**env, "PATH": f"{player.parent}:/bin"}, "say", "hello", "--voice", "1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "played.wav").stat().st_size == file.stat().st_size
    done = hearth(env, "say", "hello", "-o", str(tmp_path / "a.txt"))
    assert done.returncode == 2
    assert ".mp3" in done.stderr
