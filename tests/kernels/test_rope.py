"""Rotary embeddings: the tables by their definitions, the rotation, the write to the cache."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.cache.naive import CacheScales
from kernels.rope import naive, rope_tables
from kernels.rope import triton as kernel
from kernels.rope.naive import Rotation
from tests.kernels.tolerances import TOLERANCE, apart, assert_near, few, normal

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}


def angles(scaling: dict[str, object] | None, length: int = 512) -> Tensor:
    """The angle of one position for each pair of dimensions, of a head of 64."""
    cos, sin = rope_tables(64, 10000.0, length, scaling, "cpu")
    return torch.atan2(sin[1], cos[1])


def test_the_table_turns_the_first_pair_by_a_radian_a_position() -> None:
    cos, sin = rope_tables(64, 10000.0, 9, None, "cpu")
    assert_near(cos[:, 0], torch.arange(9.0).cos())
    assert_near(sin[:, 31], (torch.arange(9.0) * 10000 ** (-62 / 64)).sin())
    assert cos.shape == (9, 32)


def test_linear_scaling_stretches_all_waves() -> None:
    assert_near(angles({"type": "linear", "factor": 4.0}), angles(None) / 4)


def test_dynamic_scaling_acts_beyond_the_original_context_only() -> None:
    scaling = {
        "rope_type": "dynamic",
        "factor": 2.0,
        "original_max_position_embeddings": 256,
    }
    assert_near(angles(scaling, 256), angles(None))
    base = 10000 * (2 * 512 / 256 - 1) ** (64 / 62)
    assert_near(angles(scaling, 512), base ** (-torch.arange(32.0) / 32))


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    plain, stretched = angles(None), angles(LLAMA3)
    wave = 2 * math.pi / plain
    assert_near(stretched[wave < 64], plain[wave < 64])
    assert_near(stretched[wave > 256], plain[wave > 256] / 8)
    between = (wave > 64) & (wave < 256)
    assert (stretched[between] < plain[between]).all()
    assert (stretched[between] > plain[between] / 8).all()


def test_yarn_keeps_short_waves_stretches_long_ones_and_sharpens_attention() -> None:
    cos, sin = rope_tables(64, 10000.0, 512, YARN, "cpu")
    factor = 0.1 * math.log(4) + 1
    assert_near(torch.hypot(cos[7], sin[7]), torch.full((32,), factor))
    assert_near(angles(YARN)[0], angles(None)[0])
    assert_near(angles(YARN)[-1], angles(None)[-1] / 4)


def test_longrope_takes_its_short_factors_up_to_the_original_context() -> None:
    scaling = {
        "rope_type": "longrope",
        "short_factor": [2.0] * 32,
        "long_factor": [5.0] * 32,
        "original_max_position_embeddings": 256,
        "factor": 16.0,
        "attention_factor": 1.0,
    }
    assert_near(angles(scaling, 256), angles(None) / 2)
    assert_near(angles(scaling, 257), angles(None) / 5)
    del scaling["attention_factor"]
    cos, sin = rope_tables(64, 10000.0, 9, scaling, "cpu")
    assert_near(torch.hypot(cos[3], sin[3]), torch.full((32,), math.sqrt(1.5)))


def test_an_unknown_type_and_a_missing_number_are_named() -> None:
    with pytest.raises(ValueError, match="rope_type 'spiral' is unknown"):
        rope_tables(64, 1e4, 9, {"rope_type": "spiral"}, "cpu")
    with pytest.raises(ValueError, match=r"type 'yarn' has no 'factor'"):
        rope_tables(64, 1e4, 9, {"rope_type": "yarn"}, "cpu")


def test_rotation_turns_pairs_half_a_width_apart_and_leaves_the_rest() -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 9.0]]])
    quarter = naive.rotation_factors(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    assert_near(naive.rotate(x, quarter), torch.tensor([[[-3.0, -4.0, 1.0, 2.0, 9.0]]]))


def test_rows_go_to_their_slots_and_slot_minus_one_nowhere() -> None:
    caches = torch.zeros(3, 4, 2, 8), torch.zeros(3, 4, 2, 8)
    rows = normal(3, 4, 8), normal(3, 2, 8), normal(3, 2, 8, seed=1)
    rotation = Rotation(*rope_tables(8, 1e4, 1, None, "cpu"), torch.zeros(3, dtype=torch.int64))
    for rotate_and_store in (naive.rotate_and_store, kernel.rotate_and_store):
        rotate_and_store(rows, rotation, caches, torch.tensor([9, -1, 0]))
        for cache, row in zip(caches, rows[1:], strict=True):
            assert cache[2, 1].equal(row[0])
            assert cache[0, 0].equal(row[2])
            assert int((cache != 0).any(-1).any(-1).sum()) == 2
            cache.zero_()


@pytest.mark.parametrize(("dtype", "error"), [(torch.int8, 0.01), (torch.float8_e4m3fn, 0.07)])
def test_quantized_rows_come_back_near(dtype: torch.dtype, error: float) -> None:
    rows = normal(50, 2, 64) * 300
    stored, scale = naive.quantize_rows(rows, dtype)
    assert ((stored.float() * scale[..., None] - rows).norm() / rows.norm()) < error


def test_float8_without_scales_is_cut_at_its_largest_number() -> None:
    cache = torch.zeros(1, 4, 1, 2).to(torch.float8_e4m3fn)
    naive.store(torch.tensor([[[1000.0, -0.5]]]), cache, torch.tensor([2]))
    assert cache[0, 2, 0].float().tolist() == [448.0, -0.5]


@few
@given(
    st.integers(0, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(((8, 8), (24, 24), (96, 64), (80, 32))),
    st.sampled_from(tuple(TOLERANCE)),
)
def test_the_kernel_turns_and_stores_the_same(
    tokens: int, key_heads: int, group: int, widths: tuple[int, int], dtype: torch.dtype
) -> None:
    heads, (width, turned) = key_heads * group, widths
    rows = normal(tokens, heads + 2 * key_heads, width, dtype=dtype)
    parts = rows.split((heads, key_heads, key_heads), dim=1)
    positions = torch.arange(tokens) * 7 % 40
    rotation = Rotation(*rope_tables(turned, 1e4, 40, None, "cpu"), positions)
    slots = (torch.arange(tokens) * 5 % 16).where(torch.arange(tokens) != 1, -1)
    shape = (2, 4, 4, key_heads, width)
    caches, expected = (tuple(torch.zeros(shape).to(dtype).unbind()) for _ in range(2))
    turned_query = naive.rotate_and_store(parts, rotation, expected, slots)
    apart_parts = (parts[0], apart(parts[1]), parts[2])
    assert_near(kernel.rotate_and_store(apart_parts, rotation, caches, slots), turned_query)
    for got, wanted in zip(caches, expected, strict=True):
        assert_near(got, wanted)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_the_kernel_quantizes_as_it_stores(dtype: torch.dtype) -> None:
    parts = (normal(3, 4, 16), normal(3, 2, 16, seed=1), normal(3, 2, 16, seed=2))
    rotation = Rotation(*rope_tables(16, 1e4, 40, None, "cpu"), torch.tensor([0, 3, 39]))
    slots, read = torch.tensor([1, 6, 11]), []
    for module in (naive, kernel):
        caches = tuple(torch.zeros(3, 4, 2, 16).to(dtype) for _ in range(2))
        scales = CacheScales(torch.zeros(3, 4, 2), torch.zeros(3, 4, 2))
        module.rotate_and_store(parts, rotation, caches, slots, scales)
        read.append((caches[0].float() * scales.keys[..., None], scales))
    assert_near(read[1][1].keys, read[0][1].keys)
    assert_near(read[1][1].values, read[0][1].values)
    near = 0.5 if dtype == torch.float8_e4m3fn else 0.01
    torch.testing.assert_close(read[1][0], read[0][0], rtol=near, atol=0.03)


@pytest.mark.parametrize(
    ("scaling", "frequencies", "factor"),
    [
        (
            LLAMA3 | {"original_max_position_embeddings": 8192},
            (0.6890443, 0.01145423, 0.0003671573, 1.209405e-06),
            1.0,
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 4096,
                "truncate": False,
            },
            (0.6890443, 0.006794959, 3.830881e-05, 3.023511e-07),
            1.3465735902799727,
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 32.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.8,
                "original_max_position_embeddings": 4096,
            },
            (0.6890443, 0.007015714, 3.830881e-05, 3.023511e-07),
            1.0542683394598802,
        ),
    ],
)
def test_frequencies_are_those_that_transformers_5_23_computes(
    scaling: dict[str, object], frequencies: tuple[float, ...], factor: float
) -> None:
    cos, sin = rope_tables(64, 150000.0, 9, scaling, "cpu")
    pairs = [1, 12, 18, 31]
    got = torch.atan2(sin[1, pairs], cos[1, pairs])
    torch.testing.assert_close(got, torch.tensor(frequencies), rtol=1e-5, atol=0)
    assert_near(torch.hypot(cos[1, pairs], sin[1, pairs]), torch.full((4,), factor))
