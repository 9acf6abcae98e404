"""Small cross-encoders that the conversion is measured on: config.json, vocabulary, texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_TRAINED: Final = Path(__file__).parents[2] / "unit/modelfile/convert/vocabulary/trained"
_SMALL: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 96,
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
}
RERANKERS: Final[dict[str, dict[str, Any]]] = {
    "bert": {
        "config": {
            "model_type": "bert",
            "architectures": ["BertForSequenceClassification"],
            **_SMALL,
            "vocab_size": 350,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
        },
        "tokenizer": "wordpiece",
        "first": "[CLS]",
        "between": ["[SEP]"],
        "last": "[SEP]",
    },
    "xlm-roberta": {
        "config": {
            "model_type": "xlm-roberta",
            "architectures": ["XLMRobertaForSequenceClassification"],
            **_SMALL,
            "vocab_size": 169,
            "type_vocab_size": 1,
            "pad_token_id": 6,
        },
        "tokenizer": "unigram",
        "first": "<s>",
        "between": ["</s>", "</s>"],
        "last": "</s>",
    },
}
PAIRS: Final = [
    ("the quick fox", "The quick brown fox jumps over the lazy dog"),
    ("the quick fox", "Hello world"),
    ("Hello", "The fox and the dog and the world, and the lazy fox over the dog again"),
]


def tokenizer_json(name: str) -> dict[str, Any]:
    """The tokenizer.json of a case, which puts marks around one text and two."""
    case = RERANKERS[name]
    tokenizer: dict[str, Any] = json.loads((_TRAINED / f"{case['tokenizer']}.json").read_text())
    first, between, last = case["first"], case["between"], case["last"]
    ids = {item["content"]: item["id"] for item in tokenizer["added_tokens"]}
    start = [_mark(first, 0), _text("A", 0)]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*start, _mark(last, 0)],
        "pair": [*start, *(_mark(mark, 0) for mark in between), _text("B", 1), _mark(last, 1)],
        "special_tokens": {
            mark: {"id": mark, "ids": [ids[mark]], "tokens": [mark]} for mark in {first, last}
        },
    }
    return tokenizer


def _mark(token: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _text(name: str, type_id: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}
