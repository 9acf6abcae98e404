"""GPTQ and AWQ on published weights, beside rounding each weight to the nearest in the same groups.

SmolLM2 is published here in Q4_1 only: its weights are made floats first, and these are quantized.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.real.conftest import OPTIONS, Model, upload
from tests.real.test_perplexity import TEXT

EVALUATED, CALIBRATED = TEXT[:10_000], TEXT[20_000:35_000]

pytestmark = pytest.mark.slow


def create(http: httpx.Client, name: str, **body: object) -> None:
    """Its progress is read, so that the client waits for silence only to end."""
    with http.stream("POST", "/api/create", json={"model": name, **body}) as reply:
        *_, last = reply.iter_lines()
    assert json.loads(last) == {"status": "success"}, last


@pytest.fixture(scope="module")
def floats(http: httpx.Client, installed: Model) -> str:
    pytest.importorskip("torch")
    options = {**OPTIONS, "backend": "torch"}
    create(
        http,
        "smollm2-floats",
        **{"from": installed("smollm2"), "quantize": "F16", "allow_requantize": True},
        parameters=options,
    )
    return "smollm2-floats"


@pytest.fixture(scope="module")
def rounded(http: httpx.Client, floats: str) -> float:
    """The perplexity with four bits rounded to the nearest, in groups of 64."""
    create(http, "smollm2-rounded", **{"from": floats}, parameters={"quantize": "int4"})
    body = {"model": "smollm2-rounded", "text": EVALUATED, "stream": False}
    answer = http.post("/api/eval", json=body)
    assert answer.status_code == 200, answer.text
    return float(answer.json()["perplexity"])


@pytest.mark.parametrize("kind", ["gptq-int4", "awq-int4"])
def test_four_bits_by_a_text_lose_less_than_rounding(
    http: httpx.Client, floats: str, rounded: float, kind: str, tmp_path: Path
) -> None:
    texts = {}
    for field, text in (("calibrate", CALIBRATED), ("evaluate", EVALUATED)):
        path = tmp_path / field
        path.write_text(text, "ascii")
        texts[field] = upload(http, path)
    create(http, f"smollm2-{kind}", **{"from": floats}, quantize=kind, **texts)
    shown = http.post("/api/show", json={"model": f"smollm2-{kind}"}).json()
    before, after = (shown["perplexity"][side]["perplexity"] for side in ("before", "after"))
    print(f"{kind}: {before:.3f} before, {after:.3f} after ({after / before:.4f});"
          f" rounded to the nearest {rounded:.3f} ({rounded / before:.4f})")  # fmt: skip
    assert before < after < rounded
