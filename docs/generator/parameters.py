"""The page of all parameters, from modelfile.parameters."""

from __future__ import annotations

from cli.commands.parameters import written_default
from docs.generator.markdown import cell, code, table
from modelfile.parameters import DEPRECATED, PARAMETERS, Parameter, expected

_INTRO = """\
# Parameters

Set a parameter in a [Modelfile](../modelfile.md) with `PARAMETER NAME VALUE`, in the chat with
`/set parameter NAME VALUE`, with `hearth run -p NAME=VALUE`, or in the `options` of Ollama's
requests. `hearth parameters` prints the same list, `hearth parameters NAME` one entry. The default
`(automatic)` depends on the model and the machine.
"""


def page() -> str:
    """The page."""
    rows = list(PARAMETERS.values())
    loads = [row for row in rows if row.load]
    others = [row for row in rows if not row.load]
    deprecated = ", ".join(code(name) for name in sorted(DEPRECATED))
    return "\n".join(
        [
            _INTRO,
            "## For each request",
            "",
            _table(others),
            "",
            "## For loading the model",
            "",
            "A request that changes one of these reloads the model, unless it is a `num_ctx` that"
            " the cache can hold.",
            "",
            _table(loads),
            "",
            "## Without effect",
            "",
            f"Accepted for old Modelfiles: {deprecated}.",
            "",
        ]
    )


def _table(rows: list[Parameter]) -> str:
    cells = [
        (code(row.name), cell(row.doc), code(written_default(row)), cell(expected(row)))
        for row in rows
    ]
    return table(("name", "meaning", "default", "accepts"), cells)
