from __future__ import annotations

import json
from typing import Any

import pytest

from modelfile.errors import ConvertError
from modelfile.speech.voice import check_voice_config


def config(**changes: Any) -> bytes:
    value = {
        "num_symbols": 10,
        "num_speakers": 2,
        "audio": {"sample_rate": 22050, "quality": "medium"},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.5, "length_scale": 1},
        "phoneme_id_map": {"_": [0], "a": [1, 2]},
        "speaker_id_map": {"ann": 0, "bob": 1},
        "dataset": "left out",
    }
    return json.dumps({**value, **changes}).encode()


def test_what_piper_reads_is_kept_and_the_rest_left_out() -> None:
    found = check_voice_config(config())
    assert found["speaker_id_map"] == {"ann": 0, "bob": 1}
    assert found["inference"] == {"noise_scale": 0.5, "length_scale": 1.0, "noise_w": 0.8}
    assert found["audio"] == {"sample_rate": 22050}
    assert "dataset" not in found


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_symbols": 1 << 40}, "num_symbols"),
        ({"num_speakers": True}, "num_speakers"),
        ({"audio": {"sample_rate": 1}}, "sample_rate"),
        ({"audio": []}, "sample_rate"),
        ({"audio": [1]}, "audio"),
        ({"espeak": {"voice": "../../etc/passwd"}}, r"espeak\.voice"),
        ({"phoneme_type": "pinyin"}, "phoneme_type"),
        ({"inference": {"length_scale": 1e9}}, "length_scale"),
        ({"inference": {"noise_w": "loud"}}, "noise_w"),
        ({"phoneme_id_map": {}}, "phoneme_id_map"),
        ({"phoneme_id_map": {"a": [10]}}, "phoneme_id_map"),
        ({"phoneme_id_map": {"a": 1}}, "phoneme_id_map"),
        ({"speaker_id_map": {"cy": 2}}, "speaker_id_map"),
    ],
)
def test_a_number_or_name_out_of_bounds_is_refused_by_its_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConvertError, match=field):
        check_voice_config(config(**changes))


def test_no_json_is_refused() -> None:
    with pytest.raises(ConvertError, match="not JSON"):
        check_voice_config(b"{")
