"""The prompt of a gap to be filled in, of the vocabulary's own tokens, as llama.cpp's server puts
it together: other files, the prefix, the suffix, and the token after which the middle comes.

Where no other files are given, none are named. llama.cpp makes up a repository and a file then,
after which small models write about the code instead of writing it.

Source of the repository's part: Qwen2.5-Coder, https://arxiv.org/abs/2409.12186.
"""

from __future__ import annotations

from runner.backends.backend import Tokenizer
from runner.types import Infill

_REPOSITORY, _FILE = "myproject\n", "filename\n"  # llama.cpp's words for what no client says
_NO_FILE_TOKEN = "\n\n--- snippet ---\n\n"
_SUFFIX_SHARE = 4  # a suffix keeps 1/4 of what is left where both are too long


def infill_tokens(tokenizer: Tokenizer, infill: Infill, max_tokens: int | None) -> list[int]:
    """The prompt's token ids. Of what is more than max_tokens (None: nothing is), the beginning of
    the other files is left out first, then what is far from the gap. Control tokens written in the
    texts are text."""
    ids = infill.tokens
    head = tokenizer.encode("", add_bos=True, parse_special=False)
    prompt = tokenizer.encode(infill.prompt, add_bos=False, parse_special=True)
    extra = _other_files(tokenizer, infill)
    prefix, suffix = (_plain(tokenizer, text) for text in (infill.prefix, infill.suffix))
    middle = [ids["mid"]] if "mid" in ids else []
    if max_tokens is not None:
        room = max(0, max_tokens - len(head) - len(prompt) - len(middle) - 2)
        suffix = suffix[: max(room // _SUFFIX_SHARE, room - len(prefix))]
        prefix = _last(prefix, room - len(suffix))
        extra = _last(extra, room - len(suffix) - len(prefix))
    before, after = [ids["pre"], *prefix, *prompt], [ids["suf"], *suffix]
    parts = after + before if infill.suffix_first else before + after
    return [*head, *extra, *parts, *middle]


def _other_files(tokenizer: Tokenizer, infill: Infill) -> list[int]:
    """What stands before the prefix."""
    if not infill.extra:
        return []
    tokens: list[int] = []
    repository, file = infill.tokens.get("rep"), infill.tokens.get("sep")
    if repository is not None:
        tokens += [repository, *_plain(tokenizer, _REPOSITORY)]
    for name, text in infill.extra:
        if file is not None:
            tokens += [file, *_plain(tokenizer, f"{name}\n")]
        else:
            tokens += _plain(tokenizer, _NO_FILE_TOKEN)
        tokens += _plain(tokenizer, text)
    if file is not None:
        tokens += [file, *_plain(tokenizer, _FILE)]
    return tokens


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_bos=False, parse_special=False)


def _last(tokens: list[int], count: int) -> list[int]:
    return tokens[max(0, len(tokens) - count) :]
