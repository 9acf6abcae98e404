"""What the daemon reads from a bundle: the model's shape and what it can do.

Knows the keys of GGUF metadata. Loads nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from modelfile.adapters import check_adapter
from modelfile.errors import BuildError
from modelfile.templates.capabilities import Capabilities, capabilities_of
from modelfile.templates.dialect import JINJA
from modelfile.templates.renderers import needs_template, template_in_use
from registry.bundle import Bundle
from registry.formats.gguf import GgufHeader, LazyArray
from runner.errors import ModelInvalid
from runner.models.placement import ModelShape, Source

ECHO_ARCHITECTURE = "hearth-echo"
_ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert",
             "neo-bert", "eurobert", "gemma-embedding", "t5encoder")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model can be asked for."""

    completion: bool
    embedding: bool
    tools: bool
    insert: bool = False  # fills in the middle
    thinking: bool = False

    def names(self) -> list[str]:
        """The abilities in Ollama's words."""
        flags = {
            "completion": self.completion,
            "embedding": self.embedding,
            "tools": self.tools,
            "insert": self.insert,
            "thinking": self.thinking,
        }
        return [name for name, has in flags.items() if has]


def template_of(bundle: Bundle) -> str | None:
    """The chat template that counts: that of RENDERER, the Modelfile's, else the model file's."""
    return _template(bundle)[0]


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


def abilities_of(bundle: Bundle) -> Abilities:
    """What the model can be asked for."""
    pools = bundle.header.is_embedding or bundle.header.architecture in _ENCODERS
    echo = bundle.header.architecture == ECHO_ARCHITECTURE
    found = template_capabilities(bundle)
    return Abilities(
        completion=not pools,
        embedding=pools or echo,
        tools=not pools and found.tools,
        insert=not pools and found.insert,
        thinking=not pools and found.thinking,
    )


def source_of(bundle: Bundle, backend: str | None = None) -> Source:
    """Which files to load, and how. backend: the one asked for; None and auto: that of the file.
    Raises ModelInvalid when its prompts cannot be written, an adapter is not for this model, or
    the backend cannot load it."""
    if needs_template(bundle.renderer, bundle.template, bundle.header.chat_template):
        raise ModelInvalid(
            f"{bundle.name.short} needs the renderer {bundle.renderer}, which is not built in, and "
            "has no chat template of its own; create it again with a TEMPLATE"
        )
    template, of_file = _template(bundle)
    return Source(
        path=str(bundle.model_path),
        backend=_backend(bundle, backend),
        embedding=not abilities_of(bundle).completion,
        chat_template=None if of_file else template,
        adapters=_adapters(bundle),
    )


def _backend(bundle: Bundle, asked: str | None) -> str:
    own = "echo" if bundle.header.architecture == ECHO_ARCHITECTURE else "llamacpp"
    if asked not in (None, "auto", own):
        raise ModelInvalid(
            f"{bundle.name.short} cannot be loaded by the backend {asked}: its file is for {own}; "
            f"create it again without PARAMETER backend {asked}"
        )
    return own


def _adapters(bundle: Bundle) -> tuple[str, ...]:
    for adapter in bundle.adapters:
        try:
            check_adapter(adapter.header, bundle.header)
        except BuildError as error:
            raise ModelInvalid(f"{bundle.name.short}: {error}") from None
    return tuple(str(adapter.path) for adapter in bundle.adapters)


def shape_of(bundle: Bundle) -> ModelShape:
    """The numbers of the memory plan. Raises ModelInvalid when the header lacks one."""
    header = bundle.header
    if header.architecture == ECHO_ARCHITECTURE:
        context = header.context_length or 4096
        return ModelShape(bundle.model_size_bytes, context, 512, 1, 1, 1, (0,), 1, 1)
    embedding = _given(header.embedding_length, "embedding_length", header)
    layers = _given(header.block_count, "block_count", header)
    return ModelShape(
        weights_bytes=bundle.model_size_bytes + sum(item.size_bytes for item in bundle.adapters),
        context_length=_given(header.context_length, "context_length", header),
        vocabulary=header.vocabulary_size or 0,
        embedding_length=embedding,
        feed_forward_length=_feed_forward(header) or 4 * embedding,
        heads=header.head_count or 1,
        heads_kv=header.head_counts_kv or (0,) * layers,
        key_length=header.key_length or 0,
        value_length=header.value_length or 0,
    )


def _given(value: int | None, key: str, header: GgufHeader) -> int:
    if value is None:
        raise ModelInvalid(f"the model file does not say {header.architecture}.{key}")
    return value


def _feed_forward(header: GgufHeader) -> int | None:
    value = header.architecture_value("feed_forward_length")
    if isinstance(value, LazyArray):
        value = tuple(value.load())
    return max(value, default=None) if isinstance(value, tuple) else value
