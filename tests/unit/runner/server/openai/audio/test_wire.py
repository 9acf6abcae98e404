from __future__ import annotations

import pytest

from runner.errors import InvalidRequest, Unsupported
from runner.server.openai.audio.wire import SpeechRequest, transcription_form
from runner.server.request_body import validate

MODEL = ("model", "w")


def test_a_form_as_the_sdk_sends_it() -> None:
    form = transcription_form(
        [
            MODEL,
            ("language", "en"),
            ("temperature", "0.2"),
            ("stream", "true"),
            ("response_format", "verbose_json"),
            ("timestamp_granularities[]", "word"),
            ("timestamp_granularities[]", "segment"),
            ("chunking_strategy[type]", "server_vad"),
            ("chunking_strategy[threshold]", "0.4"),
            ("chunking_strategy[silence_duration_ms]", "700"),
            ("keywords[]", "hearth"),
        ]
    )
    request = form.request(b"sound", translate=False, client="ann")
    assert (request.language, request.temperature, request.words) == ("en", 0.2, True)
    assert request.vad == {"threshold": 0.4, "min_silence_duration_ms": 700}
    assert (form.stream, request.keywords, request.audio) == (True, ("hearth",), b"sound")


def test_vad_is_on_with_auto_and_off_without() -> None:
    auto = transcription_form([MODEL, ("chunking_strategy", "auto")])
    assert auto.request(b"", translate=False, client="").vad == {}
    assert transcription_form([MODEL]).request(b"", translate=False, client="").vad is None


@pytest.mark.parametrize(
    ("item", "kind", "param"),
    [
        (("include[]", "logprobs"), Unsupported, "include"),
        (("known_speaker_names[]", "ann"), Unsupported, "known_speaker_names"),
        (("response_format", "diarized_json"), Unsupported, "response_format"),
        (("response_format", "xml"), InvalidRequest, "response_format"),
        (("temperature", "hot"), InvalidRequest, "temperature"),
        (("temperature", "2"), InvalidRequest, "temperature"),
        (("stream", "perhaps"), InvalidRequest, "stream"),
        (("timestamp_granularities[]", "word"), InvalidRequest, "timestamp_granularities"),
        (("chunking_strategy[type]", "client_vad"), InvalidRequest, "chunking_strategy.type"),
        (("chunking_strategy", "never"), InvalidRequest, "chunking_strategy"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    item: tuple[str, str], kind: type[InvalidRequest], param: str
) -> None:
    with pytest.raises(kind) as refusal:
        transcription_form([MODEL, item])
    assert refusal.value.details["param"].startswith(param)


def test_a_voice_of_openai_means_the_usual_speaker() -> None:
    def speaker(voice: object) -> str | None:
        body = {"model": "v", "input": "hi", "voice": voice}
        return validate(body, SpeechRequest).request("").speaker

    assert speaker("alloy") is None
    assert speaker("ann") == "ann"
    assert speaker({"id": "ann"}) == "ann"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speed", 9),
        ("input", ""),
        ("input", "x" * 4097),
        ("response_format", "midi"),
        ("instructions", "shout"),
    ],
)
def test_a_text_is_spoken_within_bounds(field: str, value: object) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=field):
        validate({"model": "v", "input": "hi", "voice": "alloy", field: value}, SpeechRequest)
