from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert import writer
from modelfile.convert.architectures import ARCHITECTURES
from modelfile.convert.conversion import convert
from modelfile.convert.metadata import MetadataValue
from modelfile.errors import ConvertError
from registry.errors import InvalidSafetensors, StoreFull
from registry.formats.gguf import read_header
from tests.conformance.convert.cases import CASES
from tests.unit.modelfile.convert.checkpoints import (
    CONFIG,
    files_in,
    ignore,
    no_vocabulary,
    shapes,
    write_checkpoint,
    zeros,
)


def run(folder: Path, type: str = "auto") -> Path:
    """Converts the folder; the file that was written."""
    target = folder / "model.gguf"
    convert(files_in(folder), target, type, ignore, no_vocabulary)
    return target


def refused(folder: Path, message: str) -> None:
    """Converting the folder fails with this message and leaves nothing."""
    before = set(folder.iterdir())
    with pytest.raises((ConvertError, InvalidSafetensors), match=message) as caught:
        run(folder)
    assert set(folder.iterdir()) == before
    assert str(folder) not in str(caught.value)


def change_config(folder: Path, **values: Any) -> None:
    """Other values in the config.json of the folder."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **values}))


def test_vectors_and_norms_are_f32_and_matrices_have_the_type_asked_for(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    types = {tensor.name: tensor.type for tensor in read_header(run(tmp_path, "F16")).tensors}
    assert types["blk.0.attn_norm.weight"] == types["output_norm.weight"] == "F32"
    assert types["blk.1.attn_q.weight"] == types["token_embd.weight"] == "F16"


@pytest.mark.parametrize(("dtype", "type"), [("BF16", "BF16"), ("F16", "F16"), ("F32", "F16")])
def test_auto_keeps_bfloat16_and_makes_the_rest_f16(tmp_path: Path, dtype: str, type: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(zeros(shapes(CONFIG), dtype))
    assert read_header(run(tmp_path)).quantization == type


def test_the_file_names_the_model_and_its_license(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Hello\n")
    metadata = read_header(run(tmp_path)).metadata
    assert metadata["general.name"] == "Small-Model"
    assert metadata["general.license"] == "apache-2.0"
    assert metadata["llama.attention.head_count_kv"] == 2


def test_shards_are_read_by_the_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    whole = read_header(run(tmp_path)).tensors
    names = list(shapes(CONFIG))
    places = {}
    for number, part in ((1, names[:7]), (2, names[7:])):
        shard = f"model-{number:05}-of-00002.safetensors"
        (tmp_path / shard).write_bytes(zeros({name: shapes(CONFIG)[name] for name in part}))
        places.update(dict.fromkeys(part, shard))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.gguf").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert read_header(run(tmp_path)).tensors == whole
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    (tmp_path / "model.gguf").unlink()
    refused(tmp_path, "missing shard model-00002-of-00002.safetensors")


def test_an_output_that_repeats_the_embedding_is_left_out(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    change_config(tmp_path, tie_word_embeddings=True)
    names = {tensor.name for tensor in read_header(run(tmp_path)).tensors}
    assert "output.weight" not in names


def test_an_embedder_without_prefix_and_output_is_converted(tmp_path: Path) -> None:
    config = {**CONFIG, "model_type": "qwen3", "head_dim": 4}
    write_checkpoint(tmp_path, config)
    bare = {name.removeprefix("model."): shape for name, shape in shapes(config).items()}
    del bare["lm_head.weight"]
    (tmp_path / "model.safetensors").write_bytes(zeros(bare))
    names = {tensor.name for tensor in read_header(run(tmp_path)).tensors}
    assert "token_embd.weight" in names
    assert "output.weight" not in names


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    rest = shapes(CONFIG)
    del rest["model.layers.1.mlp.up_proj.weight"]
    (tmp_path / "model.safetensors").write_bytes(zeros(rest))
    refused(tmp_path, "has no 'model.layers.1.mlp.up_proj.weight'")


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    more = {**shapes(CONFIG), "model.layers.2.mlp.up_proj.weight": (2, 2)}
    (tmp_path / "model.safetensors").write_bytes(zeros(more))
    refused(tmp_path, "'model.layers.2.mlp.up_proj.weight', which config.json does not describe")


def test_a_shape_that_contradicts_the_config_is_shown_beside_the_expected_one(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path)
    change_config(tmp_path, intermediate_size=32)
    refused(tmp_path, r"gate_proj.weight is \[24, 16\], but config.json requires \[32, 16\]")


def test_weights_of_another_type_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes().replace(b'"BF16"', b'"I16" ')
    (tmp_path / "model.safetensors").write_bytes(content)
    refused(tmp_path, "is I16, expected F32, F16, BF16")


def test_an_unknown_architecture_is_named_with_the_known_ones(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    change_config(tmp_path, model_type="mamba")
    refused(tmp_path, "unknown architecture 'mamba' in config.json; known are bert.* xlm-roberta")
    change_config(tmp_path, model_type="whisper")
    refused(tmp_path, "ct2-transformers-converter")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": None}, "hidden_size: missing"),
        ({"hidden_size": 0}, "hidden_size: '0', expected a whole number from 1"),
        ({"hidden_size": True}, "hidden_size: 'True'"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers: '1000000'"),
        ({"num_attention_heads": 3}, "num_key_value_heads: 2 does not divide 3"),
        ({"hidden_size": 18}, "hidden_size: 18 is not a multiple of 4"),
        ({"head_dim": 5}, "head_dim: 5 is odd"),
        ({"hidden_act": "relu"}, "hidden_act: 'relu' is not supported"),
        ({"rope_theta": "many"}, "rope_theta: 'many'"),
        ({"rope_theta": 1e300}, "rope_theta: .* out of range"),
        ({"rope_scaling": {"type": "odd", "factor": 2}}, "'odd' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor: missing"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": -1}}, "must be positive"),
        ({"rope_scaling": []}, "rope_scaling: expected an object"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"already quantized \('gptq'\)"),
        ({"model_type": None}, "model_type: missing"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_its_key(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    write_checkpoint(tmp_path)
    change_config(tmp_path, **values)
    refused(tmp_path, message)


def test_every_architecture_refuses_an_empty_config(tmp_path: Path) -> None:
    for name in ARCHITECTURES:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
        (tmp_path / "model.safetensors").write_bytes(zeros({"a": (1,)}))
        refused(tmp_path, r"^config\.json: \w+: ")


def test_a_missing_or_broken_config_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1, "a": 2}')
    refused(tmp_path, "'a' occurs twice")
    (tmp_path / "config.json").unlink()
    refused(tmp_path, "config.json is missing")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_a_pickle_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    refused(tmp_path, f"{name} is a pickle")


@pytest.mark.parametrize(
    "start", [b"PK\x03\x04", b"\x80\x02}q\x00", b"\x80\x04\x95\x00\x00\x00\x00\x00\x00"]
)
def test_a_pickle_is_refused_by_its_first_bytes(tmp_path: Path, start: bytes) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(start + bytes(100))
    refused(tmp_path, "model.safetensors is a pickle")


def test_no_weights_at_all_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "no .safetensors file")


def test_a_tokenizer_of_another_size_is_refused(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path)
    tokens = MetadataValue("tokenizer.ggml.tokens", "strings", ("a", "b"))
    with pytest.raises(ConvertError, match="has 2 tokens, config"):
        convert(files, tmp_path / "model.gguf", "F16", ignore, lambda *_: (tokens,))


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path)
    with pytest.raises(ConvertError, match="type 'Q9', expected F32, F16, BF16 or auto"):
        convert(files, tmp_path / "model.gguf", "Q9", ignore, no_vocabulary)


def test_a_value_too_large_for_f16_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-2:] = b"\x7f\x7f"  # 3.4e38 as bfloat16
    path.write_bytes(raw)
    before = set(tmp_path.iterdir())
    with pytest.raises(ConvertError, match="too large for F16"):
        run(tmp_path, "F16")
    assert set(tmp_path.iterdir()) == before
    assert read_header(run(tmp_path, "BF16")).quantization == "BF16"


def test_a_full_disk_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path)
    monkeypatch.setattr("registry.atomic.free_bytes", lambda _: 100)
    with pytest.raises(StoreFull, match="100 B is free") as caught:
        run(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.glob("*.gguf*"))


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path)
    assert not list(tmp_path.glob("*.gguf*"))


def test_a_file_system_that_cannot_copy_gives_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path)
    expected = run(tmp_path).read_bytes()

    def refuse(*_: Any) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    assert run(tmp_path).read_bytes() == expected


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(files, tmp_path / "model.gguf", "F16", interrupt, no_vocabulary)
    assert not list(tmp_path.glob("*.gguf*"))


def test_progress_counts_up_to_the_size_of_the_file(tmp_path: Path) -> None:
    files, seen = write_checkpoint(tmp_path), []
    target = tmp_path / "model.gguf"
    convert(files, target, "F16", lambda *report: seen.append(report), no_vocabulary)
    assert {status for status, _, _ in seen} == {writer.STATUS}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1:] == (target.stat().st_size, target.stat().st_size)


ENCODER: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 8,
}


def test_pooling_comes_from_the_folder_of_sentence_transformers(tmp_path: Path) -> None:
    files, target = write_checkpoint(tmp_path, ENCODER), tmp_path / "model.gguf"
    convert(files, target, "F16", ignore, no_vocabulary)
    assert read_header(target).architecture_value("pooling_type") == 1
    pooling = tmp_path / "pooling.json"
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    files["1_Pooling/config.json"] = pooling
    convert(files, target, "F16", ignore, no_vocabulary)
    assert read_header(target).architecture_value("pooling_type") == 2


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode": "weightedmean"},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode": ["mean", "cls"]},
        {},
    ],
)
def test_pooling_of_another_kind_and_several_kinds_are_refused(
    tmp_path: Path, pooling: dict[str, Any]
) -> None:
    files = write_checkpoint(tmp_path, ENCODER)
    files["1_Pooling/config.json"] = tmp_path / "pooling.json"
    files["1_Pooling/config.json"].write_text(json.dumps(pooling))
    with pytest.raises(ConvertError, match="only mean, cls and lasttoken"):
        convert(files, tmp_path / "model.gguf", "F16", ignore, no_vocabulary)


def modules(tmp_path: Path, *kinds: tuple[str, str]) -> Path:
    listed = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(kinds)
    ]
    file = tmp_path / "modules.json"
    file.write_text(json.dumps(listed))
    return file


def test_pooling_is_read_where_modules_json_says_it_is(tmp_path: Path) -> None:
    files, target = write_checkpoint(tmp_path, ENCODER), tmp_path / "model.gguf"
    files["modules.json"] = modules(
        tmp_path, ("Transformer", ""), ("Pooling", "2_Pooling"), ("Normalize", "3_Normalize")
    )
    for folder, mode in (("1_Pooling", "cls"), ("2_Pooling", "lasttoken")):
        files[f"{folder}/config.json"] = tmp_path / f"{folder}.json"
        files[f"{folder}/config.json"].write_text(json.dumps({"pooling_mode": mode}))
    convert(files, target, "F16", ignore, no_vocabulary)
    assert read_header(target).architecture_value("pooling_type") == 3


@pytest.mark.parametrize("kind", ["Dense", "LayerNorm", "WeightedLayerPooling", "LSTM"])
def test_a_module_that_changes_the_vectors_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    files = write_checkpoint(tmp_path, ENCODER)
    files["modules.json"] = modules(
        tmp_path, ("Transformer", ""), ("Pooling", "1_Pooling"), (kind, f"2_{kind}")
    )
    with pytest.raises(ConvertError, match=f"the module '2_{kind}' .'{kind}'. changes the vectors"):
        convert(files, tmp_path / "model.gguf", "F16", ignore, no_vocabulary)


def test_the_weights_of_a_dense_module_are_refused_without_modules_json_too(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path, ENCODER)
    files["2_Dense/config.json"] = tmp_path / "dense.json"
    with pytest.raises(ConvertError, match="'2_Dense'"):
        convert(files, tmp_path / "model.gguf", "F16", ignore, no_vocabulary)


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"type": 1, "path": ""}]', "[", "7"])
def test_a_damaged_modules_json_is_refused(tmp_path: Path, text: str) -> None:
    files = write_checkpoint(tmp_path, ENCODER)
    files["modules.json"] = tmp_path / "modules.json"
    files["modules.json"].write_text(text)
    with pytest.raises(ConvertError, match=r"modules\.json"):
        convert(files, tmp_path / "model.gguf", "F16", ignore, no_vocabulary)


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])  # of transformers 4 and 5
def test_both_names_of_the_number_of_experts_are_read(tmp_path: Path, key: str) -> None:
    config = {name: value for name, value in CASES["qwen3_moe"].items() if name != "num_experts"}
    write_checkpoint(tmp_path, {**config, key: 4})
    assert read_header(run(tmp_path)).metadata["qwen3moe.expert_count"] == 4
