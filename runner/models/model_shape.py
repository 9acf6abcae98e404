"""What the daemon reads from a bundle: the model's shape and what it can do.

Knows the keys of GGUF metadata. Loads nothing.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

from modelfile.adapters import check_adapter
from modelfile.drafts import check_draft
from modelfile.errors import BuildError
from modelfile.templates.capabilities import Capabilities, capabilities_of
from modelfile.templates.dialect import JINJA
from modelfile.templates.renderers import needs_template, template_in_use
from registry.bundle import Bundle, BundleFile
from registry.formats.gguf import GgufHeader, LazyArray
from runner.errors import ModelInvalid
from runner.models.memory_plan import ModelFiles, ModelShape
from runner.models.vision import projector_of, projector_shape
from runner.types import BackendName

log = logging.getLogger("hearth.models")

ECHO_ARCHITECTURE = "hearth-echo"
_ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert",
             "neo-bert", "eurobert", "gemma-embedding", "t5encoder")  # fmt: skip
_RANK = 4  # llama.cpp's LLAMA_POOLING_TYPE_RANK
_HEADS = ("cls.weight", "cls.output.weight")
_TORCH_BYTES = 4  # of a weight on a CPU, where it computes GGUF files in float32
# Queries, keys and values are one map, whose adapters lie in one matrix with zeros between them
_ADAPTER_FILL = 3


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

    def names(self) -> list[str]:
        """The abilities in Ollama's words."""
        flags = {
            "completion": self.completion,
            "embedding": self.embedding,
            "tools": self.tools,
            "insert": self.insert,
            "thinking": self.thinking,
            "rerank": self.rerank,
            "vision": self.vision,
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


def model_capabilities(bundle: Bundle) -> ModelCapabilities:
    """What the model can be asked for."""
    pools = bundle.header.is_embedding or bundle.header.architecture in _ENCODERS
    echo = bundle.header.architecture == ECHO_ARCHITECTURE
    found = template_capabilities(bundle)
    ranks = pools and _ranks(bundle.header)
    return ModelCapabilities(
        completion=not pools,
        embedding=(pools and not ranks) or echo,
        tools=not pools and found.tools,
        insert=not pools and found.insert,
        thinking=not pools and found.thinking,
        rerank=ranks,
        vision=not pools and projector_of(bundle) is not None,
    )


def _ranks(header: GgufHeader) -> bool:
    """Whether the file says that it ranks and has the head to do it with."""
    asked = header.architecture_value("pooling_type") == _RANK
    return asked and any(tensor.name in _HEADS for tensor in header.tensors)


def model_files(bundle: Bundle, backend: str | None = None) -> ModelFiles:
    """Which files to load, and how. backend: the one asked for; None and auto: that of the file.
    Raises ModelInvalid when its prompts cannot be written, an adapter is not for this model, or
    the backend cannot load it."""
    if needs_template(bundle.renderer, bundle.template, bundle.header.chat_template):
        raise ModelInvalid(
            f"{bundle.name.short} needs the renderer {bundle.renderer}, which is not built in, and "
            "has no chat template of its own; create it again with a TEMPLATE"
        )
    template, of_file = _template(bundle)
    abilities = model_capabilities(bundle)
    return ModelFiles(
        path=str(bundle.model_path),
        backend=_backend(bundle, backend),
        embedding=not abilities.completion,
        ranking=abilities.rerank,
        chat_template=None if of_file else template,
        adapters=_adapters(bundle),
        draft=_path(draft_model(bundle, backend)),
        projector=_path(projector_of(bundle, backend)) if abilities.completion else None,
    )


def _path(file: BundleFile | None) -> str | None:
    return None if file is None else str(file.path)


def _backend(bundle: Bundle, asked: str | None) -> BackendName:
    own: BackendName = "llamacpp"
    if bundle.header.architecture == ECHO_ARCHITECTURE:
        own = "echo"
    if runs_on_torch(bundle):
        own = "torch"
    if asked in (None, "auto", own):
        if own == "torch":
            _check_for_torch(bundle)
        return own
    if asked == "torch" and own == "llamacpp":
        _check_for_torch(bundle)
        return "torch"
    raise ModelInvalid(
        f"{bundle.name.short} cannot be loaded by the backend {asked}: its file is for {own}; "
        f"create it again without PARAMETER backend {asked}"
    )


def runs_on_torch(bundle: Bundle, asked: str | None = None) -> bool:
    """Whether the backend torch loads the model: asked for, or the only one that can, for a
    quantized checkpoint that was kept as it is."""
    return asked == "torch" or bundle.header.keeps_checkpoint


def _check_for_torch(bundle: Bundle) -> None:
    """Raises ModelInvalid for what the torch backend does not do."""
    if model_capabilities(bundle).rerank:
        raise ModelInvalid(
            f"{bundle.name.short} scores pairs of texts, which the backend torch does not do;"
            " create it again without PARAMETER backend torch"
        )


def _adapters(bundle: Bundle) -> tuple[str, ...]:
    for adapter in bundle.adapters:
        try:
            check_adapter(adapter.header, bundle.header)
        except BuildError as error:
            raise ModelInvalid(f"{bundle.name.short}: {error}") from None
    return tuple(str(adapter.path) for adapter in bundle.adapters)


def model_shape(bundle: Bundle, backend: str | None = None) -> ModelShape:
    """The numbers of the memory plan. backend: the one asked for. Raises ModelInvalid when the
    header lacks one."""
    own = _shape(bundle.header, _weights_bytes(bundle, backend))
    if runs_on_torch(bundle, backend):
        own = dataclasses.replace(own, stored_bytes=_stored_bytes(bundle))
    own = dataclasses.replace(own, projector=projector_shape(projector_of(bundle, backend)))
    draft = draft_model(bundle, backend)
    if draft is None:
        return own
    return dataclasses.replace(own, draft=_shape(draft.header, draft.size_bytes))


def draft_model(bundle: Bundle, backend: str | None = None) -> BundleFile | None:
    """The draft model, unless it is one that cannot propose tokens for this model or backend:
    that changes no answer."""
    draft = None if runs_on_torch(bundle, backend) else bundle.draft
    try:
        if draft is not None:
            check_draft(draft.header, bundle.header)
    except BuildError as error:
        log.warning("%s runs without its draft model: %s", bundle.name.short, error)
        return None
    return draft


def _shape(header: GgufHeader, weights_bytes: int) -> ModelShape:
    if header.architecture == ECHO_ARCHITECTURE:
        context = header.context_length or 4096
        return ModelShape(weights_bytes, context, 512, 1, 1, 1, (0,), 1, 1)
    embedding = _given(header.embedding_length, "embedding_length", header)
    layers = _given(header.block_count, "block_count", header)
    return ModelShape(
        weights_bytes=weights_bytes,
        context_length=_given(header.context_length, "context_length", header),
        vocabulary=header.vocabulary_size or 0,
        embedding_length=embedding,
        feed_forward_length=_feed_forward(header) or 4 * embedding,
        heads=header.head_count or 1,
        heads_kv=header.head_counts_kv or (0,) * layers,
        key_length=header.key_length or 0,
        value_length=header.value_length or 0,
    )


def _weights_bytes(bundle: Bundle, backend: str | None) -> int:
    if runs_on_torch(bundle, backend):
        return _TORCH_BYTES * (bundle.header.parameter_count + _adapter_weights(bundle))
    return bundle.model_size_bytes + sum(item.size_bytes for item in bundle.adapters)


def _stored_bytes(bundle: Bundle) -> int:
    """Of torch on a GPU: packed weights as they are, adapters in 16 bits."""
    return bundle.header.tensors_size_bytes + 2 * _adapter_weights(bundle)


def _adapter_weights(bundle: Bundle) -> int:
    return _ADAPTER_FILL * sum(item.header.parameter_count for item in bundle.adapters)


def _given(value: int | None, key: str, header: GgufHeader) -> int:
    if value is None:
        raise ModelInvalid(f"the model file does not say {header.architecture}.{key}")
    return value


def _feed_forward(header: GgufHeader) -> int | None:
    value = header.architecture_value("feed_forward_length")
    if isinstance(value, LazyArray):
        value = tuple(value.load())
    return max(value, default=None) if isinstance(value, tuple) else value
