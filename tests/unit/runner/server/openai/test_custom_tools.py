from __future__ import annotations

from runner.server.openai.custom_tools import as_function


def test_a_model_reads_a_custom_tool_as_a_function_of_one_text() -> None:
    # Models see these words: others would change prompts and answers.
    assert as_function("run", "runs code", None, "tools.0") == {
        "name": "run",
        "description": "runs code",
        "parameters": {
            "type": "object",
            "properties": {"input": {"type": "string", "description": "the whole input, as text"}},
            "required": ["input"],
            "additionalProperties": False,
        },
    }
