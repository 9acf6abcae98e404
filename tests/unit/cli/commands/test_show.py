"""What show says of a model."""

from __future__ import annotations

from cli.commands.show import model_rows


def test_what_a_quantization_cost_is_told() -> None:
    measured = {
        "type": "GPTQ-INT4",
        "text": "the last quarter of the calibration text",
        "before": {"perplexity": 10.0, "tokens": 500},
        "after": {"perplexity": 10.5, "tokens": 500},
    }
    rows = dict(model_rows({"perplexity": measured}))
    assert rows["perplexity"] == "10.5000, before 10.0000: x 1.0500"
    assert rows["  measured on"] == "500 tokens of the last quarter of the calibration text"
    assert "perplexity" not in dict(model_rows({"perplexity": None}))
