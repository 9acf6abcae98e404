"""What a projector's file must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidGguf
from registry.formats.gguf import read_header, types
from registry.formats.gguf.projector_rules import check_projector_file
from tests.attack.mutations import Gguf, read_gguf, write_gguf
from tests.gguf_files import Value, f32, numbers, text, u32
from tests.vision_files import AUDIO_KINDS, KINDS, write_audio_model, write_vision_model

FLAWS: dict[str, tuple[str, Value | None, str]] = {
    "no size": ("clip.vision.image_size", u32(0), "image_size is 0"),
    "a patch larger than the image": ("clip.vision.patch_size", u32(64), "patch_size is 64"),
    "no layers": ("clip.vision.block_count", u32(0), "block_count is 0"),
    "heads that do not divide": ("clip.vision.attention.head_count", u32(5), "head_count is 5"),
    "no epsilon": ("clip.vision.attention.layer_norm_epsilon", None, "layer_norm_epsilon is None"),
    "a negative one": ("clip.vision.attention.layer_norm_epsilon", f32(-1.0), "is -1.0"),
    "two means": ("clip.vision.image_mean", numbers(types.FLOAT32, [0.5, 0.5]), "image_mean"),
    "a deviation of 0": ("clip.vision.image_std", numbers(types.FLOAT32, [1, 0, 1]), "image_std"),
    "an unknown kind": ("clip.projector_type", text("of_tomorrow"), "'of_tomorrow'"),
    "no kind": ("clip.projector_type", None, "is not a known kind"),
    "more layers than tensors": ("clip.vision.block_count", u32(2), "v.blk.1.attn_q.weight"),
    "another width": ("clip.vision.embedding_length", u32(64), "has the shape"),
}


@pytest.fixture(params=sorted(KINDS), scope="module")
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Gguf:
    folder = tmp_path_factory.mktemp("projector")
    return read_gguf(write_vision_model(folder, request.param).projector, weights=True)


def check(folder: Path, made: Gguf) -> None:
    path = folder / "projector.gguf"
    head, size = write_gguf(made)
    path.write_bytes(head.ljust(size, b"\0"))
    check_projector_file(read_header(path))


def test_a_sound_projector_is_taken(tmp_path: Path, sound: Gguf) -> None:
    check(tmp_path, sound)


@pytest.mark.parametrize("name", FLAWS)
def test_a_key_that_ends_libmtmd_is_refused(tmp_path: Path, sound: Gguf, name: str) -> None:
    key, value, message = FLAWS[name]
    entries = [entry for entry in sound.entries if entry[0] != key]
    if value is not None:
        entries.append((key, value))
    with pytest.raises(InvalidGguf, match=message):
        check(tmp_path, Gguf(entries, sound.tensors))


def test_each_matrix_must_be_there(tmp_path: Path, sound: Gguf) -> None:
    for number, tensor in enumerate(sound.tensors):
        others = [*sound.tensors[:number], *sound.tensors[number + 1 :]]
        optional = tensor.name.endswith(".bias") or tensor.name.startswith("v.post_ln")
        if not optional:
            with pytest.raises(InvalidGguf, match=f"{tensor.name} is missing"):
                check(tmp_path, Gguf(sound.entries, others))


AUDIO_FLAWS: dict[str, tuple[str, Value | None, str]] = {
    "no bins": ("clip.audio.num_mel_bins", u32(0), "num_mel_bins is 0"),
    "too many bins": ("clip.audio.num_mel_bins", u32(257), "num_mel_bins is 257"),
    "other bins": ("clip.audio.num_mel_bins", u32(128), "a.conv1d.1.weight has the shape"),
    "heads that do not divide": ("clip.audio.attention.head_count", u32(5), "head_count is 5"),
    "no epsilon": ("clip.audio.attention.layer_norm_epsilon", None, "layer_norm_epsilon is None"),
    "more layers than tensors": ("clip.audio.block_count", u32(2), "a.blk.1.attn_q.weight"),
    "a negative epsilon": ("clip.audio.attention.layer_norm_epsilon", f32(-1.0), "is -1.0"),
    "another type": ("clip.audio.block_count", f32(1.0), "of type"),
    "other heads": ("clip.audio.attention.head_count_kv", u32(1), "head_count_kv is 1"),
    "another width": ("clip.audio.embedding_length", u32(64), "has the shape"),
    "an unknown kind": ("clip.projector_type", text("of_tomorrow"), "'of_tomorrow'"),
}


@pytest.fixture(params=sorted(AUDIO_KINDS), scope="module")
def heard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Gguf:
    folder = tmp_path_factory.mktemp("projector")
    return read_gguf(write_audio_model(folder, request.param).projector, weights=True)


@pytest.mark.parametrize("name", AUDIO_FLAWS)
def test_a_key_of_an_audio_tower_that_ends_libmtmd_is_refused(
    tmp_path: Path, heard: Gguf, name: str
) -> None:
    check(tmp_path, heard)
    key, value, message = AUDIO_FLAWS[name]
    entries = [entry for entry in heard.entries if entry[0] != key]
    if value is not None:
        entries.append((key, value))
    with pytest.raises(InvalidGguf, match=message):
        check(tmp_path, Gguf(entries, heard.tensors))


def test_each_tensor_of_an_audio_tower_must_be_there(tmp_path: Path, heard: Gguf) -> None:
    for number, tensor in enumerate(heard.tensors):
        others = [*heard.tensors[:number], *heard.tensors[number + 1 :]]
        optional = ("attn_out.bias", "ffn_up.bias", "ffn_down.bias")
        if not tensor.name.endswith(optional) and "post_ln" not in tensor.name:
            with pytest.raises(InvalidGguf, match=f"{tensor.name} is missing"):
                check(tmp_path, Gguf(heard.entries, others))


@pytest.mark.parametrize("factor", [0, 8, 65])
def test_frames_that_libmtmd_would_count_wrongly_are_refused(tmp_path: Path, factor: int) -> None:
    made = read_gguf(write_audio_model(tmp_path, "ultravox").projector, weights=True)
    key = "clip.audio.projector.stack_factor"
    entries = [entry for entry in made.entries if entry[0] != key]
    with pytest.raises(InvalidGguf, match="stack_factor"):
        check(tmp_path, Gguf([*entries, (key, u32(factor))], made.tensors))
