from __future__ import annotations

import json

from runner.server.openai.audio import transcripts
from runner.speech import Recording, Segment, SpokenWord

SEGMENTS = [
    Segment(0, 0.0, 2.5, " Hello --> there.", (1, 2), 0.0, -0.2, 1.0, 0.01),
    Segment(
        3000, 3661.004, 3662.0, " Bye", (3,), 0.0, -0.3, 1.0, 0.02, (SpokenWord(1.0, 2.0, " Bye"),)
    ),
]
WHOLE = transcripts.Transcript(SEGMENTS, Recording("en", 3662.5), translated=False)


def test_subtitles_number_their_blocks_and_keep_arrows_out_of_the_text() -> None:
    assert transcripts.answer(WHOLE, "srt", ()).decode() == (
        "1\n00:00:00,000 --> 00:00:02,500\nHello -> there.\n\n"
        "2\n01:01:01,004 --> 01:01:02,000\nBye\n\n"
    )


def test_vtt_has_its_head_and_points() -> None:
    text = transcripts.answer(WHOLE, "vtt", ()).decode()
    assert text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nHello")


def test_json_and_text_hold_what_was_said() -> None:
    assert json.loads(transcripts.answer(WHOLE, "json", ())) == {
        "text": "Hello --> there. Bye",
        "usage": {"type": "duration", "seconds": 3662.5},
    }
    assert transcripts.answer(WHOLE, "text", ()) == b"Hello --> there. Bye\n"


def test_verbose_json_has_segments_unless_only_words_are_wanted() -> None:
    found = json.loads(transcripts.answer(WHOLE, "verbose_json", ()))
    assert (found["task"], found["language"], found["duration"]) == ("transcribe", "en", 3662.5)
    assert [each["id"] for each in found["segments"]] == [0, 1]
    assert "words" not in found
    found = json.loads(transcripts.answer(WHOLE, "verbose_json", ["word"]))
    assert found["words"] == [{"word": "Bye", "start": 1.0, "end": 2.0}]
    assert "segments" not in found
