"""The smallest backend does what the protocol asks of every one."""

from __future__ import annotations

import pytest

from runner.backends.backend import BackendError, Row
from runner.backends.echo import EOS, EchoBackend, EchoTokenizer, load
from runner.types import LoadPlan, SamplingParams


@pytest.fixture
def backend() -> EchoBackend:
    model = load(LoadPlan("/nowhere", "echo", 64, 100, 4), lambda share: None)
    assert isinstance(model.backend, EchoBackend)
    return model.backend


class Only:
    """A mask of one token."""

    def __init__(self, token: int) -> None:
        self._token = token

    def bits(self) -> bytes:
        return (1 << self._token).to_bytes(EOS // 8 + 1, "little")


def generate(backend: EchoBackend, prompt: bytes, count: int) -> list[int]:
    sampler, output = backend.create_sampler(SamplingParams()), list[int]()
    tokens, position = [*prompt], 0
    for _ in range(count):
        (sampled,) = backend.step([Row(0, tokens, position, sampler)])
        position += len(tokens)
        tokens = [sampled.token]
        output += tokens
    backend.release(0)
    return output


def test_the_prompt_is_repeated_and_ended(backend: EchoBackend) -> None:
    assert generate(backend, b"abc", 5) == [*b"abc", EOS, *b"a"]


def test_a_reply_goes_on_where_its_sequence_is_computed_again(backend: EchoBackend) -> None:
    sampler = backend.create_sampler(SamplingParams(logprobs=1))
    (first,) = backend.step([Row(0, [*b"abc"], 0, sampler)])
    backend.release(0)
    (second,) = backend.step([Row(2, [*b"abc", first.token], 0, sampler)])
    assert (second.token, second.top) == (b"b"[0], ((b"b"[0], 0.0),))


def test_shared_and_trimmed_tokens_are_those_of_the_source(backend: EchoBackend) -> None:
    backend.step([Row(0, [*b"abcd"], 0)])
    backend.share(0, 1, 3)
    assert backend.trim(1, 2)
    (sampled,) = backend.step([Row(1, [*b"x"], 2, backend.create_sampler(SamplingParams()))])
    assert sampled.token == b"a"[0]


def test_a_mask_decides(backend: EchoBackend) -> None:
    sampler = backend.create_sampler(SamplingParams())
    (sampled,) = backend.step([Row(0, [*b"abc"], 0, sampler, mask=Only(EOS))])
    assert sampled.token == EOS


def test_what_it_lacks_is_refused(backend: EchoBackend) -> None:
    with pytest.raises(BackendError, match="embedding"):
        backend.embed([[1]])
    with pytest.raises(BackendError, match="cannot save sequences"):
        backend.save(0)


def test_the_tokenizer_gives_back_any_text() -> None:
    tokenizer = EchoTokenizer()
    tokens = tokenizer.encode("naïve 🦊", add_bos=True, parse_special=True)
    assert b"".join(map(tokenizer.piece, tokens)).decode() == "naïve 🦊"
    assert tokenizer.is_end(EOS)
    assert not tokenizer.piece(EOS)
