"""ember's tokenizer: SentencePiece-style BPE with byte fallback, the algorithm llama.cpp runs for
`llama` vocabularies.

Regularity is bought on purpose, because a small model cannot afford to learn every word twice:
- digits, single letters and punctuation are tokens of their own; letters never merge with anything
else;
- a space merges only with the first piece of a word, and only after the letters have merged, so a
word is cut the
  same way after a space, after a quote and at the start of a line;
- a few pairs of JSON punctuation are tokens.
Spaces are written as U+2581. No space is added in front of a text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from tests.ember.notation import words

SPACE = "▁"
VOCABULARY = 4096
CONTROL = ("<unk>", "<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|pad|>")
VISIBLE = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
)
UNKNOWN_ID, END_OF_TEXT_ID, IM_END_ID, IM_START_ID, PAD_ID = range(5)
JSON_PIECES = words(
    """": _" ":_" :_" ", ,_" ",_" {" _{ _{" :_{ :_{" ":_{ ":_{" "} }} "}} }}} "}}} }, "}, },_" "},_"
    _[ [" _[" :_[ :_[" ":_[ ":_[" "] "]} "]}} ]} ]}} ], "], ],_" "],_\"""".replace("_", SPACE)
)
"""None ends with a space: that space would be taken from the word behind it."""
ASCII = tuple(chr(code) for code in range(33, 127))
SPACED_SHARE = 0.42
"""Part of the learned pieces that are kept for pieces with a leading space."""

_SPECIAL = re.compile("|".join(re.escape(token) for token in (*CONTROL, *VISIBLE)))
_WORD = re.compile(rf"{SPACE}?[A-Za-z]+|(?:(?!{SPACE}[A-Za-z])[^A-Za-z])+")
"""Pieces that can be merged by themselves: no token reaches over their borders."""
_LETTERS = re.compile(r"[A-Za-z]+")


class Kind(IntEnum):
    """Token types with the numbers GGUF gives them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    BYTE = 6


@dataclass(slots=True)
class Tokenizer:
    """Encodes and decodes; `scores` order the merges, higher first."""

    tokens: list[str]
    scores: list[float]
    kinds: list[Kind]
    ids: dict[str, int] = field(init=False)
    _cache: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = {
            token: index
            for index, token in enumerate(self.tokens)
            if self.kinds[index] is not Kind.BYTE
        }

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens in the text become their own ids."""
        ids: list[int] = []
        start = 0
        for match in _SPECIAL.finditer(text):
            self._encode_plain(text[start : match.start()], ids)
            ids.append(self.ids[match.group()])
            start = match.end()
        self._encode_plain(text[start:], ids)
        return ids

    def _encode_plain(self, text: str, ids: list[int]) -> None:
        if not text:
            return
        escaped = text.replace(" ", SPACE)
        for word in _WORD.findall(escaped):
            known = self._cache.get(word)
            if known is None:
                known = tuple(self._merge(word))
                if len(self._cache) < 200_000:
                    self._cache[word] = known
            ids.extend(known)

    def _merge(self, word: str) -> list[int]:
        """Join the best-scored neighbours, leftmost first on ties, until none is a token."""
        pieces = list(word)
        while len(pieces) > 1:
            best, where = None, -1
            for index in range(len(pieces) - 1):
                token = self.ids.get(pieces[index] + pieces[index + 1])
                if (
                    token is not None
                    and self.kinds[token] is Kind.NORMAL
                    and (best is None or self.scores[token] > best)
                ):
                    best, where = self.scores[token], index
            if best is None:
                break
            pieces[where : where + 2] = [pieces[where] + pieces[where + 1]]
        ids: list[int] = []
        for piece in pieces:
            token = self.ids.get(piece)
            if token is not None and self.kinds[token] is Kind.NORMAL:
                ids.append(token)
            else:
                ids.extend(FIRST_BYTE_ID + byte for byte in piece.encode())
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; control tokens are written out."""
        raw = bytearray()
        for index in ids:
            if self.kinds[index] is Kind.BYTE:
                raw.append(index - FIRST_BYTE_ID)
            else:
                raw.extend(self.tokens[index].replace(SPACE, " ").encode())
        return raw.decode(errors="replace")

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON."""
        rows = [
            [token, score, int(kind)]
            for token, score, kind in zip(self.tokens, self.scores, self.kinds, strict=True)
        ]
        path.write_text(json.dumps(rows, ensure_ascii=False))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what `save` wrote."""
        rows = json.loads(path.read_text())
        return cls(
            [row[0] for row in rows], [row[1] for row in rows], [Kind(row[2]) for row in rows]
        )


FIRST_BYTE_ID = len(CONTROL) + len(VISIBLE)


def learn(texts: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary of `VOCABULARY` tokens from `texts`; the same texts give the
    same tokens.
    """
    counts: Counter[str] = Counter()
    spaced: Counter[str] = Counter()
    for text in texts:
        escaped = _SPECIAL.sub("\n", text).replace(" ", SPACE)
        counts.update(_LETTERS.findall(escaped))
        spaced.update(match[1:] for match in re.findall(rf"{SPACE}[A-Za-z]+", escaped))
    fixed = FIRST_BYTE_ID + 256 + len(ASCII) + 1 + len(JSON_PIECES)
    spaced_count = int((VOCABULARY - fixed) * SPACED_SHARE)
    pieces = _learn_pieces(counts, VOCABULARY - fixed - spaced_count)
    alone = _assemble(pieces, [])
    starts: Counter[str] = Counter()
    for word, count in spaced.items():
        starts[alone.tokens[alone._merge(word)[0]]] += count
    # Whole assembly is a function of counts; ties are broken by the text of the piece.
    chosen = sorted(starts, key=lambda piece: (-starts[piece], piece))[:spaced_count]
    missing = VOCABULARY - fixed - len(pieces) - len(chosen)
    unused = [f"<|unused{index}|>" for index in range(missing)]
    return _assemble(pieces, chosen, unused)


def _learn_pieces(counts: Counter[str], count: int) -> list[str]:
    """Merged letter pieces in the order they were learned (byte-pair encoding, Sennrich et al.
    2016).
    """
    from tokenizers import Tokenizer as Trainable
    from tokenizers import models, trainers

    trainable = Trainable(models.BPE())
    letters = [letter for letter in ASCII if letter.isalpha()]
    trainer = trainers.BpeTrainer(
        vocab_size=count + len(letters),
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
        max_token_length=12,
        min_frequency=2,
    )
    # Damping the counts leaves room for rare words; the frequent ones are whole tokens in any case.
    ordered = sorted(counts.items())
    trainable.train_from_iterator(
        (word for word, times in ordered for _ in range(int(times**0.6) + 1)), trainer
    )
    learned = sorted(trainable.get_vocab().items(), key=lambda item: item[1])
    return [piece for piece, _ in learned if len(piece) > 1]


def _assemble(pieces: list[str], spaced: list[str], unused: list[str] | None = None) -> Tokenizer:
    tokens = [
        *CONTROL,
        *VISIBLE,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        SPACE,
        *ASCII,
        *pieces,
        *JSON_PIECES,
        *(SPACE + piece for piece in spaced),
        *(unused or []),
    ]
    kinds = [
        Kind.UNKNOWN,
        *[Kind.CONTROL] * (len(CONTROL) - 1),
        *[Kind.USER_DEFINED] * len(VISIBLE),
        *[Kind.BYTE] * 256,
    ]
    kinds += [Kind.NORMAL] * (len(tokens) - len(kinds) - len(unused or [])) + [Kind.CONTROL] * len(
        unused or []
    )
    scores = (
        [0.0] * FIRST_BYTE_ID
        + [0.0] * 256
        + [-float(rank) for rank in range(len(tokens) - FIRST_BYTE_ID - 256)]
    )
    return Tokenizer(tokens, scores, kinds)


def token_features(tokenizer: Tokenizer, slots: int = 26) -> tuple[list[list[int]], int]:
    """Feature ids per token (0 = none) and their number: letters by place from both ends, length,
    space and capital.

    The network adds the vectors of these features to the token's own (see `model.Network`).
    """
    names: dict[str, int] = {}
    rows = []
    for token, kind in zip(tokenizer.tokens, tokenizer.kinds, strict=True):
        features: list[str] = []
        bare = token.removeprefix(SPACE)
        if kind is Kind.NORMAL and bare.isalpha():
            letters = bare.lower()
            features = [f"from start {place} {letter}" for place, letter in enumerate(letters)]
            features += [f"length {len(letters)}", f"end {letters[-1]}", f"word {letters}"]
            features += ["space"] if token != bare else []
            features += ["capital"] if bare[0].isupper() else []
            features += ["capitals"] if len(bare) > 1 and bare.isupper() else []
        row = [names.setdefault(feature, len(names) + 1) for feature in features]
        rows.append((row + [0] * slots)[:slots])
    return rows, len(names) + 1
