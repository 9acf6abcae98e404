"""One rendering of a template before it becomes part of a model: templates that do not terminate
and bombs are refused when the model is created, not with the first request.

A template that refuses a conversation of one short message for other reasons may take others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from modelfile.errors import TemplateError
from modelfile.templates.budget import LimitExceeded
from modelfile.templates.dialect import compile_template
from modelfile.templates.gotemplate.errors import ExecFault

_MESSAGES: Final = ({"role": "user", "content": "Hi"},)
_TOO_MUCH: Final = (LimitExceeded, RecursionError, MemoryError, OverflowError)
_DEPTH: Final = "exceeded maximum template depth"


@lru_cache(maxsize=4)
def check_template(source: str) -> None:
    """Compile a template, of either language, and render one short question. Raises TemplateError:
    it is faulty, or the question takes more than a rendering may take."""
    template = compile_template(source)
    try:
        template.render(_MESSAGES)
    except TemplateError as error:
        if any(_is_too_much(cause) for cause in _causes(error)):
            raise TemplateError(f"{error.message}; even a short question takes that much") from (
                error
            )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_too_much(cause: BaseException) -> bool:
    deep = isinstance(cause, ExecFault) and _DEPTH in cause.message
    return deep or isinstance(cause, _TOO_MUCH)
