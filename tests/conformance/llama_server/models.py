"""The models of the suite, whose files cannot be fetched, by others of the same kind.

ember tells the stories: with an end token that it never says, since those models talk on for ever,
and the tokens <s> and </s> of a SentencePiece vocabulary. The texts of all of them are other ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from modelfile.convert.conversion import convert
from tests.conformance.convert.reranker_cases import RERANKERS, tokenizer_json
from tests.conformance.convert.weights import weight, write_safetensors
from tests.conformance.llama_server.suite import CACHE, KNOWN, REPOSITORY
from tests.split_files import parts_of
from tests.unit.modelfile.convert.checkpoints import files_in, ignore
from tests.vision_files import write_vision_model

EMBER = REPOSITORY / "registry" / "builtin" / "ember" / "ember.gguf"
PUBLISHED = Path(os.environ.get("HEARTH_TEST_MODELS") or Path.home() / ".cache" / "hearth-models")
FOLDER = CACHE / "models"
_STORY_TOKENS = {
    0: ("<unk>", 2),
    1: ("<s>", 3),
    2: ("[/turn]", 1),
    3: ("[turn]", 1),
    4: ("</s>", 3),
}
_FIM_TOKENS = {5: "<fim_prefix>", 6: "<fim_suffix>", 7: "<fim_middle>", 8: "<fim_repo>"}
_FIM_ROLES = ("pre", "suf", "mid", "rep")
_LORA_RANK = 4


@dataclass(frozen=True, slots=True)
class Substitute:
    """A model's file, with its projector."""

    model: Path
    projector: Path | None = None


def write_substitutes() -> None:
    """Write the models that are missing, and KNOWN: their files by a part of what the suite calls
    them."""
    found = {
        part: [str(file) for file in (files.model, files.projector) if file is not None]
        for part, files in _substitutes().items()
    }
    KNOWN.write_text(json.dumps(found))


def _substitutes() -> dict[str, Substitute]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    story = _made("story.gguf", _write_story)
    infill = _made("story-infill.gguf", lambda path: _write_story(path, _FIM_TOKENS))
    _made("lora.gguf", _write_adapter)
    _made("draft.gguf", lambda path: _write_story(path, name="draft"))  # no model drafts for itself
    vision = FOLDER / "gemma3.gguf", FOLDER / "gemma3-mmproj-64.gguf"
    if not vision[1].exists():
        write_vision_model(FOLDER, "gemma3")
    return {
        "stories260K-infill": Substitute(infill),
        "stories260K": Substitute(story),
        "stories15M-q8_0-00001": Substitute(_split(story)),
        "stories15M": Substitute(story),
        "bert-bge-small": Substitute(_made("embedding.gguf", _write_embedding)),
        "jina-reranker": Substitute(_made("reranker.gguf", _write_reranker)),
        "tinygemma3": Substitute(*vision),
    }


def place_downloads(tests: Path) -> None:
    """Put what the suite would download itself where it looks first."""
    write_substitutes()
    (tests / "tmp").mkdir(exist_ok=True)
    files = {
        "moe_shakespeare15M.gguf": FOLDER / "lora.gguf",
        "stories15M-q4_0.gguf": FOLDER / "draft.gguf",
    }
    for name, path in files.items():
        (tests / "tmp" / name).write_bytes(path.read_bytes())


def _made(name: str, write: Any) -> Path:
    path = FOLDER / name
    if not path.exists():
        part = path.with_suffix(".part")
        write(part)
        part.rename(path)
    return path


def _write_story(path: Path, fim: Mapping[int, str] | None = None, name: str = "story") -> None:
    """ember without its chat template."""
    reader = gguf.GGUFReader(EMBER)
    fields = {name: field.contents() for name, field in reader.fields.items() if "." in name}
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    for number, (text, kind) in _STORY_TOKENS.items():
        tokens[number], types[number] = text, kind
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    for number, text in (fim or {}).items():
        tokens[number], types[number] = text, 3
        role = _FIM_ROLES[number - min(_FIM_TOKENS)]
        writer.add_uint32(f"tokenizer.ggml.fim_{role}_token_id", number)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(fields["tokenizer.ggml.scores"])
    writer.add_token_types(types)
    for key, value in fields.items():
        if key.startswith("llama."):
            kind = reader.fields[key].types[0]
            writer.add_key_value(key, value, kind)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    writer.add_file_type(7)
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if tensor.name in ("output.weight", "token_embd.weight"):
            data[list(_STORY_TOKENS)] = 0  # ember would end every text at once
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    _write(writer)


def _write_adapter(path: Path) -> None:
    """A random LoRA, strong enough to be seen."""
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", _LORA_RANK)
    for tensor in gguf.GGUFReader(EMBER).tensors:
        if tensor.name.endswith("ffn_down.weight"):
            columns, rows = (int(size) for size in tensor.shape)
            for part, shape in (("a", (_LORA_RANK, columns)), ("b", (rows, _LORA_RANK))):
                values = random.standard_normal(shape).astype(np.float32) * np.float32(0.1)
                writer.add_tensor(f"{tensor.name}.lora_{part}", values)
    _write(writer)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _split(story: Path) -> Path:
    stem = "story-split"
    first = FOLDER / f"{stem}-00001-of-00003.gguf"
    if not first.exists():
        for name, content in sorted(parts_of(story, 3, stem).items(), reverse=True):
            (FOLDER / name).write_bytes(content)
    return first


def _write_embedding(path: Path) -> None:
    """all-MiniLM-L6-v2, whose vocabulary is that of bge, where it is at hand."""
    published = PUBLISHED / "all-MiniLM-L6-v2"
    source = published if published.is_dir() else _bert_folder("bert")
    convert(files_in(source), path, "F16", ignore)


def _write_reranker(path: Path) -> None:
    convert(files_in(_bert_folder("bert")), path, "F32", ignore)


def _bert_folder(name: str) -> Path:
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    golden = json.loads((REPOSITORY / "tests/conformance/convert/rerankers.json").read_text())
    config = RERANKERS[name]["config"]
    weights = {
        key: weight(config["model_type"], key, tuple(shape))
        for key, shape in golden[name]["tensors"].items()
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(name)))
    write_safetensors(folder / "model.safetensors", weights, "F32")
    return folder
