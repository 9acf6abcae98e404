"""Chat templates of real models, rendered by transformers, against ours."""

from __future__ import annotations

from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.dialect import JINJA, engine_of
from modelfile.templates.jinja import JinjaChatTemplate
from tests.conformance.vectors import rows

ROWS = [pytest.param(r, id=f"{r['template']}-{r['case']}") for r in rows("jinja.jsonl")] or [
    pytest.param(None, marks=pytest.mark.skip("no shared vectors here"))
]


@pytest.mark.parametrize("row", ROWS)
def test_a_template_renders_as_transformers_renders_it(row: dict[str, Any]) -> None:
    assert engine_of(row["source"]) == JINJA
    template = JinjaChatTemplate(row["source"], row["bos_token"], row["eos_token"])
    given = (row["messages"], row["tools"], row["add_generation_prompt"])
    if "raises" in row:
        with pytest.raises(TemplateError) as caught:
            template.render(*given)
        assert type(caught.value.__cause__).__name__ == row["raises"]
    else:
        assert template.render(*given) == row["expected"]
