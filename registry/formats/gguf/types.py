"""The numbered types of GGUF: metadata values, tensors, file types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL = range(8)
STRING, ARRAY, UINT64, INT64, FLOAT64 = range(8, 13)

VALUE_NAMES: Final = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool"),
    *("string", "array", "uint64", "int64", "float64"),
)

# The code of struct and array, little-endian, and the size in bytes.
SCALARS: Final[dict[int, tuple[str, int]]] = {
    UINT8: ("B", 1),
    INT8: ("b", 1),
    UINT16: ("H", 2),
    INT16: ("h", 2),
    UINT32: ("I", 4),
    INT32: ("i", 4),
    FLOAT32: ("f", 4),
    BOOL: ("B", 1),
    UINT64: ("Q", 8),
    INT64: ("q", 8),
    FLOAT64: ("d", 8),
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """How ggml stores a tensor: block_size elements take block_bytes bytes."""

    name: str
    block_size: int
    block_bytes: int


# ggml.h, enum ggml_type; the sizes are those of ggml's type traits.
TENSOR_TYPES: Final[dict[int, TensorType]] = {
    number: TensorType(*row)
    for number, row in {
        0: ("F32", 1, 4),
        1: ("F16", 1, 2),
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        9: ("Q8_1", 32, 36),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1),
        25: ("I16", 1, 2),
        26: ("I32", 1, 4),
        27: ("I64", 1, 8),
        28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56),
        30: ("BF16", 1, 2),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
        40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}
TENSOR_NUMBERS: Final = {kind.name: number for number, kind in TENSOR_TYPES.items()}

# llama.h, enum llama_ftype: what the whole file is called.
FILE_TYPES: Final[dict[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
}
FILE_NUMBERS: Final = {name: number for number, name in FILE_TYPES.items()}
