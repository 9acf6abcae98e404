"""Writes the trained network as one GGUF file.

`python -m tests.ember.export --work FOLDER --out FILE`. Tensor and key names
follow llama.cpp's
`llama` architecture; matrices are Q8_0, norms F32. There is no output matrix: it is the embedding.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from gguf.quants import quantize

from runner.jobs.distillation.student_file import BLOCK_TENSORS, add_sizes
from tests.ember.chat import TEMPLATE_PATH
from tests.ember.model import Network, Shape
from tests.ember.tokenizer import (
    END_OF_TEXT_ID,
    IM_END_ID,
    PAD_ID,
    UNKNOWN_ID,
    Tokenizer,
)
from tests.ember.train import new_network

DESCRIPTION = (
    "The tiny language model bundled with hearth: small talk, hearth questions, sums, spelling,"
    " JSON and tool calls."
)
WRITES_TO_STREAM = ("attn_output", "ffn_down")


def load(work: Path) -> tuple[Network, Tokenizer]:
    """The network of the checkpoint in `work`, and its tokenizer."""
    state = torch.load(work / "checkpoint.pt", weights_only=True, map_location="cpu")
    tokenizer = Tokenizer.load(work / "tokenizer.json")
    network = new_network(tokenizer, Shape(**state["shape"]))
    network.load_state_dict(state["network"])
    return network, tokenizer


def _centered(weight: torch.Tensor) -> torch.Tensor:
    """`weight` `[out, in]` without the mean of its outputs: what `model.CenteredNorm` takes out of
    the stream.
    """
    return weight - weight.mean(0, keepdim=True)


def tensors(network: Network) -> dict[str, np.ndarray]:
    """All tensors fp32 by their GGUF names."""
    found = {"token_embd.weight": network.embedding(), "output_norm.weight": network.norm.weight}
    for index, block in enumerate(network.blocks):
        for ours, theirs in BLOCK_TENSORS.items():
            weight = block.get_parameter(ours)
            found[f"blk.{index}.{theirs}.weight"] = (
                _centered(weight) if theirs in WRITES_TO_STREAM else weight
            )
    return {name: tensor.detach().float().numpy() for name, tensor in found.items()}


def _add_metadata(writer: GGUFWriter, shape: Shape, file_type: LlamaFileType) -> None:
    writer.add_name("ember")
    writer.add_description(DESCRIPTION)
    writer.add_license("mit")
    writer.add_author("the hearth developers")
    writer.add_languages(["en"])
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_sizes(writer, shape)


def _add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.encode() for token in tokenizer.tokens])
    writer.add_token_scores(tokenizer.scores)
    writer.add_token_types([int(kind) for kind in tokenizer.kinds])
    writer.add_bos_token_id(END_OF_TEXT_ID)
    writer.add_eos_token_id(IM_END_ID)
    writer.add_eot_token_id(IM_END_ID)
    writer.add_unk_token_id(UNKNOWN_ID)
    writer.add_pad_token_id(PAD_ID)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE_PATH.read_text())


def write(network: Network, tokenizer: Tokenizer, path: Path, full_precision: bool = False) -> None:
    """Write the GGUF to `path`, replacing it in one move; `full_precision` keeps F32 for
    comparisons.
    """
    part = path.with_suffix(".part")
    writer = GGUFWriter(part, "llama")
    _add_metadata(
        writer,
        network.shape,
        LlamaFileType.ALL_F32 if full_precision else LlamaFileType.MOSTLY_Q8_0,
    )
    _add_tokenizer(writer, tokenizer)
    for name, values in tensors(network).items():
        if values.ndim == 1 or full_precision:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(
                name,
                quantize(values, GGMLQuantizationType.Q8_0),
                raw_dtype=GGMLQuantizationType.Q8_0,
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def main(arguments: list[str] | None = None) -> None:
    """Command line of the export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full-precision", action="store_true", help="write F32 matrices")
    chosen = parser.parse_args(arguments)
    network, tokenizer = load(chosen.work)
    write(network, tokenizer, chosen.out, chosen.full_precision)
    print(
        f"{chosen.out}: {chosen.out.stat().st_size / 1e6:.2f} MB,"
        f" {network.parameter_count() / 1e6:.2f} M parameters"
    )


if __name__ == "__main__":
    main()
