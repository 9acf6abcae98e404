"""What a model can be asked for, and the chat template that says so.

Knows the keys of GGUF metadata. Loads nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from modelfile.build import ECHO_ARCHITECTURE
from modelfile.templates.chat_template import Capabilities
from modelfile.templates.dialect import JINJA, capabilities_of
from modelfile.templates.renderers import template_in_use
from registry.bundle import Bundle
from registry.formats.gguf import GgufHeader
from runner.models.vision import media_unsupported

_ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert",
             "neo-bert", "eurobert", "gemma-embedding", "t5encoder")  # fmt: skip
_POOLING_RANK = 4  # llama.cpp's LLAMA_POOLING_TYPE_RANK
_RANK_HEADS = ("cls.weight", "cls.output.weight")


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """What a model can be asked for."""

    completion: bool
    embedding: bool
    tools: bool
    insert: bool = False  # fills in the middle
    thinking: bool = False
    rerank: bool = False  # scores pairs of texts, and gives no embeddings
    vision: bool = False  # reads images
    audio: bool = False  # reads recordings
    transcription: bool = False  # hears speech
    speech: bool = False  # speaks texts

    def names(self) -> list[str]:
        """The capabilities in Ollama's words."""
        return [item.name for item in dataclasses.fields(self) if getattr(self, item.name)]


def template_of(bundle: Bundle) -> str | None:
    """The chat template that counts: that of RENDERER, the Modelfile's, else the model file's."""
    return _template(bundle)[0]


def own_template(bundle: Bundle) -> str | None:
    """The same where it is not the model file's."""
    source, of_file = _template(bundle)
    return None if of_file else source


def _template(bundle: Bundle) -> tuple[str | None, bool]:
    return template_in_use(bundle.renderer, bundle.template, bundle.header.chat_template)


def template_capabilities(bundle: Bundle) -> Capabilities:
    """What the chat template has a place for: tools, thinking, filling in the middle."""
    source, of_file = _template(bundle)
    if source is None:
        return Capabilities()
    if not of_file:
        return capabilities_of(source)
    found = capabilities_of(source, JINJA)
    if "tokenizer.chat_template.tool_use" in bundle.header.metadata:
        return dataclasses.replace(found, tools=True)
    return found


def model_capabilities(bundle: Bundle) -> ModelCapabilities:
    """What the model can be asked for."""
    if bundle.header.is_speech:
        hears = bundle.header.architecture == "whisper"
        return ModelCapabilities(False, False, False, transcription=hears, speech=not hears)
    pools = bundle.header.is_embedding or bundle.header.architecture in _ENCODERS
    echo = bundle.header.architecture == ECHO_ARCHITECTURE
    found = template_capabilities(bundle)
    ranks = pools and _ranks(bundle.header)
    return ModelCapabilities(
        completion=not pools,
        embedding=(pools and not ranks) or echo,
        tools=not pools and _calls_tools(bundle, found.tools),
        insert=not pools and (found.insert or not bundle.header.fim.missing),
        thinking=not pools and found.thinking,
        rerank=ranks,
        vision=not pools and media_unsupported(bundle) is None,
        audio=not pools and media_unsupported(bundle, "audio") is None,
    )


def _calls_tools(bundle: Bundle, native: bool) -> bool:
    """Whether the model says of itself that it calls tools: by its template, or by its Modelfile,
    which can offer them in another way."""
    wanted = bundle.parameters.get("tool_format")
    generic = wanted == "generic" and _template(bundle)[0] is not None
    return (native and wanted != "none") or generic


def _ranks(header: GgufHeader) -> bool:
    """Whether the file says that it ranks and has the head to do it with."""
    pools_rank = header.architecture_value("pooling_type") == _POOLING_RANK
    return pools_rank and any(tensor.name in _RANK_HEADS for tensor in header.tensors)
