"""The ids of the special tokens, and what is put around a text.

Owns which file takes precedence: the texts of tokenizer_config.json and special_tokens_map.json,
then the ids of generation_config.json and config.json. The post-processor of tokenizer.json says
what is added where the config is silent. Knows no tokenizer model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import brief, fault, flag, read_object, refusal
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import TOKENIZER_CONFIG, tokenizer_config
from modelfile.convert.vocabulary.post_processor import surrounding_tokens
from modelfile.convert.vocabulary.tokens import TokenType, VocabularyTable

_MAP: Final = "special_tokens_map.json"
_CONFIGS: Final = ("generation_config.json", "config.json")
# The names of Hugging Face, and those of GGUF (with its spelling of separator).
_KEYS: Final = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "cls": "cls",
    "mask": "mask",
}
_MAX_ENDS: Final = 64
# llama.cpp ends at these by their texts alone, so that eot is kept for others.
_KNOWN_ENDS: Final = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"),
    *("<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "</s>"),
)
# What a role's token is called where no file says so, in the order of preference.
_USUAL: Final = {
    "bos": ("<s>", "<bos>"),
    "eos": ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|end|>"),
    "unk": ("<unk>", "[UNK]"),
    "sep": ("[SEP]",),
    "pad": ("<pad>", "[PAD]"),
    "cls": ("[CLS]",),
    "mask": ("[MASK]", "<mask>"),
}
_MARKED: Final = (TokenType.CONTROL, TokenType.UNKNOWN)
_MESSAGE_END: Final = "<|eom_id|>"


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The config files of a folder, and the table of its tokens."""

    table: VocabularyTable
    tokenizer: Mapping[str, Any]
    config: Mapping[str, Any]
    map: Mapping[str, Any]
    configs: tuple[tuple[str, Mapping[str, Any]], ...]


def special_metadata(
    files: Mapping[str, Path],
    tokenizer: Mapping[str, Any],
    table: VocabularyTable,
    *,
    byte_level: bool,
) -> tuple[MetadataValue, ...]:
    """The ids, and whether BOS and EOS are added. table: filled. byte_level: of a byte-level BPE.

    Raises ConvertError: a token is none of the vocabulary, or one must be added that is not
    named; OSError.
    """
    folder = TokenizerFiles(
        table,
        tokenizer,
        tokenizer_config(files),
        read_object(files, _MAP),
        tuple((name, read_object(files, name)) for name in _CONFIGS),
    )
    ids = {role: id for role in _KEYS if (id := _role(folder, role)) is not None}
    added = _added(folder, ids)
    if byte_level:
        _require_end(ids)
    ids.update(_more_ends(folder, ids.get("eos")))
    values = [
        MetadataValue(f"tokenizer.ggml.{_KEYS.get(role, role)}_token_id", "u32", id)
        for role, id in ids.items()
    ]
    values += [MetadataValue(f"tokenizer.ggml.add_{role}_token", "bool", on) for role, on in added]
    return tuple(values)


def _role(folder: TokenizerFiles, role: str) -> int | None:
    key = f"{role}_token"
    for file, config in ((TOKENIZER_CONFIG, folder.config), (_MAP, folder.map)):
        text = _text(config.get(key), file, key)
        if text is not None:
            id = folder.table.find(text)
            if id is None:
                raise refusal(file, key, f"{brief(text)} is not a token of the vocabulary")
            return id
    return next(_ids(folder, f"{key}_id"), _usual(folder.table, role))


def _usual(table: VocabularyTable, role: str) -> int | None:
    """The id of a token that is no text and has a usual name of the role."""
    for text in _USUAL[role]:
        id = table.find(text)
        token = None if id is None else table.get(id)
        if token is not None and token.type in _MARKED:
            return id
    return None


def _require_end(ids: dict[str, int]) -> None:
    """Without the keys llama.cpp takes token 11 of a byte-level BPE for BOS and EOS. Raises
    ConvertError when there is no EOS; BOS is EOS then, as in GPT-2."""
    if "eos" not in ids:
        raise refusal(TOKENIZER_CONFIG, "eos_token", "missing; name the token that ends a text")
    ids.setdefault("bos", ids["eos"])


def _text(value: Any, file: str, key: str) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise refusal(file, key, f"{brief(value)}, expected the text of a token")
    return value or None


def _ids(folder: TokenizerFiles, key: str) -> Iterator[int]:
    """The ids of a key in the config files, in their order. Raises ConvertError."""
    for file, config in folder.configs:
        value = config.get(key)
        listed = value if isinstance(value, list) else [value]
        if len(listed) > _MAX_ENDS:
            raise refusal(file, key, f"{len(listed)} ids, more than {_MAX_ENDS}")
        for id in listed:
            # Older checkpoints write -1 for "no padding".
            if id is None or (id == -1 and key == "pad_token_id"):
                continue
            if type(id) is not int or not 0 <= id < folder.table.size:
                raise refusal(file, key, f"{brief(id)}, expected an id below {folder.table.size}")
            yield id


def _more_ends(folder: TokenizerFiles, eos: int | None) -> dict[str, int]:
    """The ids of eom and eot, where the configs name more ends than one."""
    texts = {
        id: token.text
        for id in dict.fromkeys(_ids(folder, "eos_token_id"))
        if id != eos and (token := folder.table.get(id)) is not None
    }
    ends: dict[str, int] = {}
    message = next((id for id, text in texts.items() if text == _MESSAGE_END), None)
    if message is not None:
        ends["eom"] = message
        del texts[message]
    if texts:
        ends["eot"] = min(texts, key=lambda id: texts[id] in _KNOWN_ENDS)
    return ends


def _added(folder: TokenizerFiles, ids: dict[str, int]) -> list[tuple[str, bool]]:
    """Whether BOS and EOS are added; ids gets the tokens that only the post-processor names."""
    frame = surrounding_tokens(folder.tokenizer)
    before, after = (None, None) if frame is None else frame
    found = []
    for role, other, text in (("bos", "cls", before), ("eos", "sep", after)):
        wanted = flag(folder.config, f"add_{role}_token", TOKENIZER_CONFIG)
        if wanted is None and frame is not None:
            wanted = text is not None
            if text is not None:
                id = folder.table.find(text)
                if id is None:
                    raise fault("post_processor", f"{brief(text)} is not a token")
                if id not in (ids.get(role), ids.get(other)) and role in ids:
                    name = f"adds {brief(text)}, but {role}_token is another"
                    raise fault("post_processor", name)
                ids[role] = id
        if wanted and role not in ids:
            raise refusal(
                TOKENIZER_CONFIG, f"add_{role}_token", f"true, but there is no {role}_token"
            )
        if wanted is not None:
            found.append((role, wanted))
    return found
