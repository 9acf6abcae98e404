"""Echo models for tests: a tiny GGUF whose architecture selects the echo backend, installed
straight into a store."""

from __future__ import annotations

import json
import struct
from typing import Any

from registry.manifest import (
    CONFIG_TYPE,
    MODEL_TYPE,
    PARAMS_TYPE,
    SYSTEM_TYPE,
    TEMPLATE_TYPE,
    Descriptor,
    Manifest,
)
from registry.names import Name
from registry.store import Store, StoredModel

TOOL_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{# calls are written as <tool_call> JSON #}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def gguf_bytes(metadata: dict[str, str | int]) -> bytes:
    """A GGUF file of version 3 without tensors; numbers are written as uint32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, value in metadata.items():
        out += _string(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + _string(value)
        else:
            out += struct.pack("<II", 4, value)
    return out + bytes(-len(out) % 32)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def echo_gguf(context_length: int = 4096, salt: str = "") -> bytes:
    """The file of an echo model. Another salt makes another digest."""
    return gguf_bytes(
        {
            "general.architecture": "hearth-echo",
            "general.name": f"echo{salt}",
            "hearth-echo.context_length": context_length,
        }
    )


def install_echo(
    store: Store,
    name: str = "echo",
    *,
    context_length: int = 4096,
    system: str | None = None,
    template: str | None = None,
    parameters: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    weights: str | None = None,
) -> StoredModel:
    """Install an echo model. Models of different names have different weights, unless told whose
    to take. config: more fields of its configuration."""
    layers = [_layer(store, MODEL_TYPE, echo_gguf(context_length, weights or name))]
    if system is not None:
        layers.append(_layer(store, SYSTEM_TYPE, system.encode()))
    if template is not None:
        layers.append(_layer(store, TEMPLATE_TYPE, template.encode()))
    if parameters is not None:
        layers.append(_layer(store, PARAMS_TYPE, json.dumps(parameters).encode()))
    told = {"model_format": "gguf", "model_family": "hearth-echo", "model_type": "0"}
    content = json.dumps(told | (config or {})).encode()
    manifest = Manifest(_layer(store, CONFIG_TYPE, content), tuple(layers))
    return store.put_manifest(Name.parse(name), manifest)


def _layer(store: Store, media_type: str, content: bytes) -> Descriptor:
    with store.blob_writer() as writer:
        writer.write(content)
        digest, size = writer.commit()
    return Descriptor(media_type, digest, size)
