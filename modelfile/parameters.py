"""Every PARAMETER: one table of names, types, ranges, defaults and their meaning.

The names and defaults are Ollama's, plus those of the engine that Ollama does not have. Used for
Modelfiles, for the options of requests and for the help text. Knows nothing of what carries them
out.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from modelfile import samplers
from modelfile.biases import MAX_BIAS, MAX_BIASES, canonical
from modelfile.cache_types import CACHE_TYPES
from modelfile.errors import ParameterError, UnknownParameter
from modelfile.load_quantization import KINDS, OFF
from modelfile.samplers import SAMPLERS

ParameterKind = Literal[
    "int", "float", "bool", "text", "texts", "ids", "shares", "biases", "samplers", "choice"
]

MAX_STOPS = 64
MAX_BAD_WORDS = 1024
MAX_IDS = 65_536
MAX_STOP_BYTES = 256
MAX_GRAMMAR_BYTES = 256 * 1024
MAX_RANKS: Final = 64  # processes that compute one model
MAX_SPLIT_DEVICES: Final = 16  # as llama.cpp
MAX_BREAKER_BYTES = 40  # as llama.cpp
_INT = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_ID = re.compile(r"\d{1,10}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d++\.?\d*|\.\d++)([eE][+-]?\d{1,3})?", re.ASCII)
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the table. load: it shapes how the model is loaded, so that a change means a
    reload; the others shape one request. default None: decided from the model and the machine.
    maximum of texts: bytes of each, of a text: bytes, of ids: the largest. max_items: of what
    repeats.
    """

    name: str
    kind: ParameterKind
    doc: str
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    load: bool = False
    max_items: int = MAX_STOPS

    @property
    def repeats(self) -> bool:
        """It may be given several times, and all of them count."""
        return self.kind in ("texts", "ids", "shares", "biases", "samplers")


# fmt: off
_ROWS: Final = (
    Parameter("num_ctx", "int", "context length in tokens", None, 1, 2**24, load=True),
    Parameter("num_batch", "int", "maximum number of tokens per step", 512, 1, 65_536, load=True),
    Parameter("num_gpu", "int", "layers on the GPU; -1: as many as fit", -1, -1, 9999, load=True),
    Parameter("main_gpu", "int", "number of the only GPU to use; 0: all", None, 0, 63, load=True),
    Parameter(
        "split_mode", "choice",
        "how several GPUs share a model: by layers, by rows of matrices, or not; backend llamacpp",
        choices=("none", "layer", "row"), load=True,
    ),
    Parameter(
        "tensor_split", "shares",
        "proportions of the model on each GPU, such as 3,1; backend llamacpp; may be repeated",
        (), maximum=1e9, max_items=MAX_SPLIT_DEVICES, load=True,
    ),
    Parameter(
        "num_cpu_moe", "int",
        "number of first layers whose experts stay in main memory; default: as few as needed",
        None, 0, 9999, load=True,
    ),
    Parameter(
        "tensor_parallel", "int",
        "processes, each with its GPU, that share every layer; backend torch",
        1, 1, MAX_RANKS, load=True,
    ),
    Parameter(
        "pipeline_parallel", "int",
        "groups of processes that each have some of the layers; backend torch",
        1, 1, MAX_RANKS, load=True,
    ),
    Parameter(
        "devices", "ids",
        "numbers of the GPUs to use, one for each process; backend torch; may be repeated",
        (), maximum=63, max_items=MAX_RANKS, load=True,
    ),
    Parameter("use_mmap", "bool", "map the model file into memory", None, load=True),
    Parameter("use_mlock", "bool", "keep the model in memory, never swapped", None, load=True),
    Parameter("numa", "bool", "spread the work over the machine's NUMA nodes", None, load=True),
    Parameter(
        "rope_frequency_base", "float", "base frequency of RoPE; 0: the model's own",
        0.0, 0, 1e9, load=True,
    ),
    Parameter(
        "rope_frequency_scale", "float", "factor of RoPE's frequencies; 0: the model's own",
        0.0, 0, 1000, load=True,
    ),
    Parameter(
        "num_thread", "int", "CPU threads; 0: one per physical core, but fewer with llama.cpp "
        "while other programs slow them down", 0, 0, 1024, load=True,
    ),
    Parameter(
        "kv_cache_type", "choice", "type of the KV cache; fp8 only on torch, where q8_0 is int8",
        choices=tuple(CACHE_TYPES), load=True,
    ),
    Parameter(
        "backend", "choice", "backend; auto: chosen by the model file", "auto",
        choices=("auto", "llamacpp", "torch", "echo"), load=True,
    ),
    Parameter(
        "quantize", "choice",
        "quantize float weights while loading; backend torch", OFF,
        choices=(OFF, *KINDS), load=True,
    ),
    Parameter("lora_scale", "float", "scale of the adapters", 1.0, -100, 100, load=True),
    Parameter(
        "num_parallel", "int", "maximum number of concurrent requests", None, 1, 1024, load=True
    ),
    Parameter(
        "draft_num_predict", "int", "maximum tokens proposed for an answer per step; 0: none",
        None, 0, 64, load=True,
    ),
    Parameter(
        "pooling", "choice",
        "how an embedding model combines token states into a vector; none: one for each token",
        choices=("none", "mean", "cls", "last"),
    ),
    Parameter("num_keep", "int", "prompt tokens kept when the context is truncated", 4, -1, 2**24),
    Parameter(
        "seed", "int", "random seed; -1: a new one for each request", -1, -(2**63), 2**63 - 1
    ),
    Parameter(
        "num_predict", "int", "maximum number of tokens to generate; -1: no limit", -1, -2, 2**24
    ),
    Parameter("top_k", "int", "sample from the k most likely tokens; 0: all", 40, 0, 2**24),
    Parameter(
        "top_p", "float", "sample from the most likely tokens with this total probability",
        0.9, 0, 1,
    ),
    Parameter("min_p", "float", "minimum probability relative to the most likely token", 0.0, 0, 1),
    Parameter("typical_p", "float", "locally typical sampling; 1: off", 1.0, 0, 1),
    Parameter(
        "top_n_sigma", "float",
        "keep tokens within this many standard deviations of the top logit", 0.0, 0, 100,
    ),
    Parameter(
        "xtc_probability", "float", "probability of removing the most likely tokens", 0.0, 0, 1
    ),
    Parameter("xtc_threshold", "float", "probability above which xtc removes tokens", 0.1, 0, 1),
    Parameter(
        "mirostat", "int", "Mirostat version 1 or 2, replaces the other filters; 0: off", 0, 0, 2
    ),
    Parameter("mirostat_tau", "float", "target surprise of Mirostat in bits", 5.0, 0, 100),
    Parameter("mirostat_eta", "float", "learning rate of Mirostat", 0.1, 0, 1),
    Parameter(
        "repeat_last_n", "int", "number of last tokens that penalties consider; -1: all",
        64, -1, 2**24,
    ),
    Parameter(
        "repeat_penalty", "float", "penalty that divides the logits of repeated tokens",
        1.0, 0.01, 100,
    ),
    Parameter(
        "repeat_limit", "int",
        "end an answer after this many tokens that only repeat earlier ones; 0: never",
        1024, 0, 2**24,
    ),
    Parameter(
        "temperature", "float", "0: always the most likely token; higher values: more random",
        0.8, 0, 100,
    ),
    Parameter(
        "presence_penalty", "float", "subtracted once from the logits of tokens that occurred",
        0.0, -100, 100,
    ),
    Parameter(
        "frequency_penalty", "float", "subtracted for each occurrence of a token", 0.0, -100, 100
    ),
    Parameter("logit_bias", "biases", "added to a token's logit, TOKEN=BIAS; may be repeated", ()),
    Parameter(
        "dry_multiplier", "float", "strength of DRY, which penalizes repeated sequences",
        0.0, 0, 100,
    ),
    Parameter("dry_base", "float", "growth of the DRY penalty per repeated token", 1.75, 1, 100),
    Parameter("dry_allowed_length", "int", "longest repetition that DRY allows", 2, 1, 2**24),
    Parameter(
        "dry_penalty_last_n", "int", "number of last tokens that DRY considers; -1: all",
        -1, -1, 2**24,
    ),
    Parameter(
        "dry_sequence_breakers", "texts",
        "strings that interrupt a sequence for DRY; may be repeated",
        ("\n", ":", '"', "*"), maximum=MAX_BREAKER_BYTES,
    ),
    Parameter("dynatemp_range", "float", "range of the dynamic temperature", 0.0, 0, 100),
    Parameter("dynatemp_exponent", "float", "exponent of the dynamic temperature", 1.0, 0.01, 100),
    Parameter(
        "samplers", "samplers",
        "samplers to use, in this order; may be repeated",
    ),
    Parameter("watermark", "bool", "add a watermark to the answer", False),
    Parameter(
        "watermark_gamma", "float", "share of the vocabulary that the watermark prefers",
        0.25, 0.01, 0.99,
    ),
    Parameter(
        "watermark_delta", "float", "added to the logits of preferred tokens", 2.0, 0, 100
    ),
    Parameter("min_tokens", "int", "minimum number of tokens to generate", 0, 0, 2**24),
    Parameter(
        "stop_token_ids", "ids", "tokens that end the answer; may be repeated", (),
        maximum=2**31 - 1, max_items=1024,
    ),
    Parameter(
        "bad_words", "texts", "texts that an answer must not contain; may be repeated", (),
        maximum=MAX_STOP_BYTES, max_items=MAX_BAD_WORDS,
    ),
    Parameter(
        "allowed_token_ids", "ids", "the only tokens that may be generated; may be repeated", (),
        maximum=2**31 - 1, max_items=MAX_IDS,
    ),
    Parameter(
        "no_repeat_ngram_size", "int", "no sequence of this many tokens occurs twice; 0: off",
        0, 0, 1024,
    ),
    Parameter(
        "thinking_budget", "int", "maximum number of reasoning tokens; -1: no limit",
        -1, -1, 2**24,
    ),
    Parameter(
        "think", "choice", "default for whether and how much to reason",
        choices=("true", "false", "low", "medium", "high", "max"),
    ),
    Parameter(
        "tool_format", "choice",
        "how tools are offered: native: by the template; generic: as text in the prompt; none: not"
        " at all; auto: native if the template supports tools, otherwise generic",
        "auto", choices=("auto", "native", "generic", "none"),
    ),
    Parameter(
        "grammar", "text", "GBNF or Lark grammar that answers must match", maximum=MAX_GRAMMAR_BYTES
    ),
    Parameter(
        "stop", "texts", "strings that end the answer; may be repeated", (), maximum=MAX_STOP_BYTES
    ),
)
# fmt: on
PARAMETERS: Final[Mapping[str, Parameter]] = {row.name: row for row in _ROWS}

# Accepted for the sake of old Modelfiles, without effect.
DEPRECATED: Final = frozenset(
    (
        *("penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only"),
        *("num_gqa", "tfs_z", "embedding_only"),
    )
)

# Options of llama.cpp's servers that would change an answer; to drop them would be to lie.
UNSUPPORTED: Final = frozenset(
    (
        *("ignore_eos", "json_schema", "lora", "min_keep", "n_probs", "post_sampling_probs"),
        "t_max_predict_ms",
    )
)


def lookup(name: str) -> Parameter | None:
    """The row of a parameter, None for a deprecated one. Raises UnknownParameter."""
    if name in PARAMETERS:
        return PARAMETERS[name]
    if name in DEPRECATED:
        return None
    raise UnknownParameter(name, nearest(name))


def nearest(name: str, limit: int = 3) -> tuple[str, ...]:
    """The names most like name, best first."""
    return tuple(difflib.get_close_matches(name.lower()[:100], PARAMETERS, n=limit, cutoff=0.6))


def warning(name: str) -> str | None:
    """What to tell about a deprecated parameter; None for the others."""
    return f"parameter {name} is deprecated and has no effect" if name in DEPRECATED else None


def parse_value(name: str, text: str) -> Any:
    """The value in a Modelfile's text; a tuple of one for what repeats; None for a deprecated
    parameter. Raises UnknownParameter, ParameterError."""
    row = lookup(name)
    if row is None:
        return None
    if row.kind == "int" and _INT.fullmatch(text):
        return validate(name, int(text))
    if row.kind == "float" and _FLOAT.fullmatch(text):
        return validate(name, float(text))
    if row.kind == "bool" and text in (*_TRUE, *_FALSE):
        return text in _TRUE
    if row.kind in ("text", "texts", "ids", "shares", "biases", "samplers", "choice"):
        return validate(name, text)
    raise _refusal(row, text)


def validate(name: str, value: Any) -> Any:
    """A JSON value as the parameter's own type: whole floats become int where int is wanted, one
    text becomes a tuple for what repeats, every form of logit_bias the one of
    modelfile.biases; None for a deprecated parameter.

    Raises UnknownParameter, ParameterError.
    """
    row = lookup(name)
    if row is None:
        return None
    checked = _CHECKS[row.kind](row, value)
    if checked is None:
        raise _refusal(row, value)
    return checked


def validate_all(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every value checked; deprecated ones are left out. Raises as validate does."""
    checked = {name: validate(name, value) for name, value in values.items()}
    return {name: value for name, value in checked.items() if value is not None}


def expected(row: Parameter) -> str:
    """What the parameter takes, for messages and help."""
    if row.kind == "choice":
        return f"one of {', '.join(row.choices)}"
    if row.kind == "text":
        return f"a string of 1 to {row.maximum} bytes"
    if row.kind == "samplers":
        return f"some of {', '.join(SAMPLERS)}"
    if row.kind == "texts":
        return f"at most {row.max_items} strings of 1 to {row.maximum} bytes"
    if row.name == "devices":
        return f"at most {row.max_items} numbers from 0 to {row.maximum}"
    if row.kind == "ids":
        return f"at most {row.max_items} token ids"
    if row.kind == "shares":
        return f"at most {row.max_items} numbers from 0 to {row.maximum:g}"
    if row.kind == "biases":
        return (
            f"at most {MAX_BIASES} of TOKEN=BIAS, a token's number or a text and a number from"
            f" -{MAX_BIAS} to {MAX_BIAS} or -inf"
        )
    if row.kind == "bool":
        return "true or false"
    noun = "a whole number" if row.kind == "int" else "a number"
    return f"{noun} from {row.minimum} to {row.maximum}"


def _refusal(row: Parameter, value: Any) -> ParameterError:
    if isinstance(value, str):
        text = value
    elif isinstance(value, int) and value.bit_length() > 1024:  # str refuses 4,300 digits
        text = f"a number of {value.bit_length()} bits"
    else:
        text = _short().repr(value)
    shown = text if len(text) <= 60 else text[:60] + "..."
    return ParameterError(f"parameter {row.name} is {shown!r}, expected {expected(row)}", row.name)


def _short() -> reprlib.Repr:
    """Writes the beginning of a value only."""
    short = reprlib.Repr()
    short.maxlist = short.maxtuple = short.maxdict = 20
    short.maxstring = short.maxother = short.maxlong = 100
    return short


def _check_int(row: Parameter, value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        return None
    return int(value) if _in_range(row, value) else None


def _check_float(row: Parameter, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if _in_range(row, value) else None


def _check_texts(row: Parameter, value: Any) -> tuple[str, ...] | None:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or len(given) > row.max_items:
        return None
    return tuple(given) if all(_is_text(row, text) for text in given) else None


def _check_ids(row: Parameter, value: Any) -> tuple[int, ...] | None:
    given = value if isinstance(value, list | tuple) else [value]
    if len(given) > row.max_items:
        return None
    found = [int(id) if isinstance(id, str) and _ID.fullmatch(id) else id for id in given]
    valid = all(type(id) is int and 0 <= id <= (row.maximum or 0) for id in found)
    return tuple(found) if valid else None


def _check_shares(row: Parameter, value: Any) -> tuple[float, ...] | None:
    """A list, or texts with commas between numbers, as llama.cpp's option has them."""
    given = value if isinstance(value, list | tuple) else [value]
    if len(given) > row.max_items:
        return None
    parts = [part for each in given for part in (each.split(",") if type(each) is str else [each])]
    if len(parts) > row.max_items:
        return None
    found: list[Any] = [
        float(part) if type(part) is str and _FLOAT.fullmatch(part.strip()) else part
        for part in parts
    ]
    valid = all(type(each) in (int, float) and 0 <= each <= (row.maximum or 0) for each in found)
    return tuple(map(float, found)) if valid else None


def _is_text(row: Parameter, value: Any) -> bool:
    size = len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else 0
    return 0 < size <= (row.maximum or 0)


def _in_range(row: Parameter, value: float) -> bool:
    """False for NaN too."""
    minimum = -math.inf if row.minimum is None else row.minimum
    maximum = math.inf if row.maximum is None else row.maximum
    return minimum <= value <= maximum


def _check_choice(row: Parameter, value: Any) -> Any:
    text = str(value).lower() if isinstance(value, bool) else value
    return text if text in row.choices else None


_CHECKS: Final[Mapping[str, Callable[[Parameter, Any], Any]]] = {
    "int": _check_int,
    "float": _check_float,
    "bool": lambda _row, value: value if isinstance(value, bool) else None,
    "text": lambda row, value: value if _is_text(row, value) else None,
    "texts": _check_texts,
    "ids": _check_ids,
    "shares": _check_shares,
    "biases": lambda _row, value: canonical(value),
    "samplers": lambda _row, value: samplers.canonical(value),
    "choice": _check_choice,
}
