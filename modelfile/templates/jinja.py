"""Jinja chat templates, rendered as transformers renders them, in a sandbox with limits.

Blocking and meant for a worker process: a hostile template ends after about a second of a common
core, later with a long conversation. Work is counted, not timed: see budget.py.
"""

from __future__ import annotations

import threading
from typing import Any

from jinja2 import Template, UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.exceptions import TemplateSyntaxError as JinjaSyntaxError

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget, LimitExceeded, measure
from modelfile.templates.chat_template import ChatTemplate, Conversation, jinja_capabilities
from modelfile.templates.publisher_defaults import read_names
from modelfile.templates.sandbox import RaisedByTemplate, Sandbox

MAX_SOURCE_BYTES = 64 * 1024  # compiling costs up to 15 µs a byte; real ones have up to 20 KB
RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
_MAX_MESSAGE_CHARS = 300


class JinjaChatTemplate(ChatTemplate):
    """A compiled template. bos, eos: the texts of these tokens, None where there is none."""

    def __init__(self, source: str, bos: str | None = None, eos: str | None = None) -> None:
        """Compile source. Raises TemplateError with the line."""
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_SOURCE_BYTES:
            raise TemplateError(f"the template has {size} bytes, at most {MAX_SOURCE_BYTES}")
        self._environment = Sandbox()
        given = {"bos_token": bos, "eos_token": eos}
        self._constants = {name: text for name, text in given.items() if text is not None}
        self._lock = threading.Lock()
        self._template = _compile(self._environment, source)
        self.default_names = read_names(source)
        self.capabilities = jinja_capabilities(source)

    def _render(self, given: Conversation) -> str:
        """See ChatTemplate."""
        for name in RESERVED:
            if name in given.options:
                raise TemplateError(
                    f"the template option {name!r} is set by hearth itself; leave it out"
                )
        values = {
            **self._constants,
            "documents": None,
            **given.options,
            "messages": list(given.messages),
            "tools": list(given.tools) if given.tools else None,
            "add_generation_prompt": given.add_generation_prompt,
        }
        with self._lock:
            return self._run(values)

    def _run(self, values: dict[str, Any]) -> str:
        self._environment.budget = Budget(measure(list(values.values())))
        try:
            return self._template.render(values)
        except RaisedByTemplate as error:
            raise TemplateError(f"the template refuses these messages: {error}") from error
        except LimitExceeded as error:
            raise TemplateError(str(error)) from error
        except (UndefinedError, SecurityError, JinjaError) as error:
            raise TemplateError(f"the template failed: {_brief(error)}") from error
        except RecursionError as error:
            raise TemplateError("the template nests too deeply") from error
        except MemoryError as error:
            raise TemplateError("the template takes too much memory") from error
        except Exception as error:
            kind = type(error).__name__
            raise TemplateError(f"the template failed: {kind}: {_brief(error)}") from error


def _compile(environment: Sandbox, source: str) -> Template:
    try:
        return environment.from_string(source)
    except JinjaSyntaxError as error:
        raise TemplateError(f"the template, line {error.lineno}: {_brief(error)}") from error
    except RecursionError as error:
        raise TemplateError("the template nests too deeply") from error
    except (JinjaError, SyntaxError, ValueError, MemoryError, OverflowError) as error:
        raise TemplateError(f"the template cannot be compiled: {_brief(error)}") from error
    except Exception as error:
        kind = type(error).__name__
        raise TemplateError(f"the template cannot be compiled: {kind}") from error


def _brief(error: BaseException) -> str:
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + "..."
