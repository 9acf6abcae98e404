"""Makes the small vocabularies of trained/ with the ids of the libraries they belong to.

Needs tokenizers and sentencepiece, which are no dependencies: run it in an environment that has
them (0.23 and 0.2 were used), from the root of the repository, when a vocabulary is to be added.
The tests compare llama.cpp, on the converted vocabulary, with the ids recorded here.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

sys.path.insert(0, str(Path(__file__).parents[5]))
from modelfile.convert.vocabulary import pretokenizers as known

TRAINED = Path(__file__).parent / "trained"
CORPUS = [
    "The quick brown fox jumps over the lazy dog, didn't it? It'll do so 12345 times!",
    "def convert(files: dict[str, Path]) -> None:\n    return {key: 0x1F for key in files}\n\n",
    "Hello world! HELLO WORLD! HelloWorld, helloWorld; we've I'M you're he'd THEY'LL",
    "Größe, naïve, façade, Ελληνικά, Привет мир, 你好世界, こんにちは, 안녕하세요, สวัสดี",
    "1 22 333 4444 55555 3.14159 1,000,000 2026-11-21\t\ttabs\r\nand   spaces    here     ",
    "😀 👍🏽 🇩🇪 café e\u0301 ½ ² ٣ «quoted» “curly” …/path/to/file.txt --flag=$HOME <tag>",
] * 4
CASES = [
    "",
    " ",
    "   ",
    "\n",
    "\n\n \n",
    "\t\ttabs",
    "Hello world",
    " Hello  world ",
    "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
    "I'VE we'll didn't HE'D they'Re",
    "1 22 333 4444 55555 666666 7777777 88888888",
    "3.14159 1,000,000 x2y3 ² ½ ٣٤٥",
    "def f(x):\n    return x\n\n\n    # end  \n",
    "a\r\nb\rc\n\rd   \n   e",
    "Größe naïve Ελληνικά Привет 你好世界 こんにちは",
    "안녕하세요",
    "สวัสดี",
    "👍🏽🇩🇪👨‍👩‍👧 \u200d\u00a0\u2003x\u3000y",
    "HelloWorld helloWorld HELLOworld XMLHttpRequest",
    "!!! ??? ... --flag=$HOME <tag></tag> {[()]} `~@#$%^&*",
    "unknown ⵣ ꙮ 𝔘 characters",
    "ends with spaces     ",
    "     starts with spaces",
]
SPECIAL = [
    "<|end|> in text and <tool>call</tool>",
    "<|begin|>Hello<|end|>\nworld<tool>x",
    "<tool><tool> <|end|>",
]


def byte_level(steps: list[Any], ignore_merges: bool = False) -> Tokenizer:
    """A byte-level BPE whose text is split by these steps."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        show_progress=False,
        special_tokens=["<|begin|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return tokenizer


def split(*expressions: str) -> list[Any]:
    """A Split for each expression, then ByteLevel without one of its own."""
    steps: list[Any] = [pre_tokenizers.Split(Regex(text), "isolated") for text in expressions]
    return [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def deepseek(*expressions: str) -> list[Any]:
    """Lines apart, then a Split for each expression, then digits."""
    *splits, last = split("[\r\n]", *expressions)
    return [*splits, pre_tokenizers.Digits(individual_digits=True), last]


def whole() -> Any:
    """ByteLevel with the expression of GPT-2."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def byte_level_kinds() -> dict[str, Tokenizer]:
    """A tokenizer for each id of llama.cpp that can be proved."""
    three, han = known._TRIPLES, known._HAN
    return {
        "gpt-2": byte_level([whole()]),
        "smollm": byte_level([pre_tokenizers.Digits(individual_digits=True), whole()]),
        "dbrx": byte_level(split(known.LLAMA3)),
        "llama-bpe": byte_level(split(known.LLAMA3), ignore_merges=True),
        "qwen2": byte_level(split(known.QWEN2)),
        "qwen35": byte_level(split(known.QWEN35)),
        "tekken": byte_level(split(known.TEKKEN), ignore_merges=True),
        "gpt-4o": byte_level(split(known.GPT4O)),
        "deepseek-v3": byte_level(split(three, han, known.DEEPSEEK3)),
        "bailingmoe": byte_level(split(known.BAILING)),
        "seed-coder": byte_level(split(known.SEED)),
        "ufakzeka": byte_level(split(known.UFAKZEKA)),
        "minicpm5": byte_level(split(three, known.MINICPM5), ignore_merges=True),
        "bloom": byte_level(split(known.BLOOM)),
        "viking": byte_level([*split(known.BLOOM)[:1], *split(known._DIGIT)]),
        "jais-2": byte_level(split(known.JAIS2)),
        "exaone-moe": byte_level(split(known.EXAONE_MOE)),
        "deepseek-coder": byte_level(deepseek(r"\s?\p{L}+", r"\s?\p{P}+", known._CJK)),
        "deepseek-llm": byte_level(
            deepseek(known.DEEPSEEK_LETTERS, known.DEEPSEEK_SIGNS, r"\s+$", known._CJK)
        ),
        "falcon": byte_level(
            [
                pre_tokenizers.Punctuation("contiguous"),
                whole(),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
    }


def wordpiece() -> Tokenizer:
    """A BERT without letters' case."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=names)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def sentence_pieces(kind: str, **options: Any) -> bytes:
    """The bytes of a SentencePiece model."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS for line in text.splitlines()]),
        model_writer=writer,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return writer.getvalue()


def as_llama(content: bytes) -> Tokenizer:
    """The BPE of a SentencePiece model as a tokenizer.json, as Hugging Face makes one."""
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    ids = {model.id_to_piece(id): id for id in range(model.get_piece_size())}
    merges = []
    for text, id in ids.items():
        for place in range(1, len(text)):
            parts = text[:place], text[place:]
            if id >= 259 and parts[0] in ids and parts[1] in ids:
                merges.append((-model.get_score(id), *(ids[part] for part in parts), parts))
    pairs = [merge[-1] for merge in sorted(merges)]
    tokenizer = Tokenizer(
        models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def as_unigram(content: bytes) -> Tokenizer:
    """A unigram SentencePiece model as a tokenizer.json, as Hugging Face makes those of T5."""
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    pieces = [(model.id_to_piece(id), model.get_score(id)) for id in range(len(model))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return tokenizer


def write(name: str, content: bytes, golden: dict[str, Any]) -> None:
    """A vocabulary and its ids."""
    kind = "json" if content.startswith(b"{") else "model"
    (TRAINED / f"{name}.{kind}").write_bytes(content)
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    (TRAINED / f"{name}.ids").write_text(text + "\n")


def write_tokenizer(name: str, tokenizer: Tokenizer) -> None:
    """A tokenizer.json and its ids: of the cases without and of all with special tokens."""
    golden = {
        "plain": [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in CASES],
        "special": [[text, tokenizer.encode(text).ids] for text in (*CASES[6:9], *SPECIAL)],
        "size": tokenizer.get_vocab_size(),
    }
    content = json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":"))
    write(name, content.encode(), golden)


def write_pieces(name: str, content: bytes) -> None:
    """A tokenizer.model and its ids."""
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    golden = {
        "plain": [[text, model.encode(text)] for text in CASES],
        "special": [],
        "size": model.get_piece_size(),
    }
    write(name, content, golden)


def main() -> None:
    """Write all of them."""
    TRAINED.mkdir(exist_ok=True)
    for name, tokenizer in byte_level_kinds().items():
        write_tokenizer(name, tokenizer)
    write_tokenizer("wordpiece", wordpiece())
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    llama = sentence_pieces("bpe", vocab_size=480, byte_fallback=True, **plain)
    write_pieces("spm-bpe", llama)
    write_tokenizer("byte-fallback", as_llama(llama))
    identity = {"normalization_rule_name": "identity", "hard_vocab_limit": False}
    unigram = sentence_pieces("unigram", vocab_size=330, **identity)
    write_tokenizer("unigram", as_unigram(unigram))
    write_pieces("spm-unigram", sentence_pieces("unigram", vocab_size=330, hard_vocab_limit=False))


if __name__ == "__main__":
    main()
