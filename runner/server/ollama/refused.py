"""What Ollama takes and this one does not honour, each with what to do instead."""

from __future__ import annotations

from typing import Final

from runner.server.refused_fields import Refusal, Refusals

_IMAGES = "models here write text; they make no images"

CHAT_REFUSED: Final[Refusals] = {
    "_debug_render_only": Refusal("POST /apply-template shows the prompt"),
}
GENERATE_REFUSED: Final[Refusals] = {
    **CHAT_REFUSED,
    "width": Refusal(_IMAGES, (0,)),
    "height": Refusal(_IMAGES, (0,)),
    "steps": Refusal(_IMAGES, (0,)),
}
