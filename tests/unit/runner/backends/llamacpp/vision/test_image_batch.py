"""hearth's batching of images against llama.cpp's own way with one sequence."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from runner.backends.backend import BackendError, DecodedAudio, DecodedImage, LoadedBackend, Row
from runner.backends.llamacpp import load
from runner.engine.engine import Engine
from runner.engine.lookup import PromptLookup
from runner.engine.odds import Proposals
from runner.engine.running_sequence import RunningSequence
from runner.engine.speculation import Speculation
from runner.errors import HearthError, InvalidRequest
from runner.types import GenerateRequest, Image, LoadPlan, SamplingParams, TokenLogprob
from runner.worker.images import ImageCache
from tests.vision_files import (
    AUDIO_KINDS,
    KINDS,
    VisionFiles,
    write_audio_model,
    write_vision_model,
)
from tests.vision_reference import MARK, Step, greedy

TOLERANCE = 1e-3
TOKENS = 6
HEAD = "<|im_start|>user\nthe fire is warm and the hearth is warm and "


def image(seed: int, width: int = 64, height: int = 40) -> Image:
    """A file of the tests' own: the size and the pixels."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    pixels = small.repeat(8, 0).repeat(8, 1)[:height, :width]
    return Image(struct.pack("<II", width, height) + pixels.tobytes())


def picture(data: bytes) -> DecodedImage:
    width, height = struct.unpack_from("<II", data)
    return DecodedImage(width, height, data[8:])


def recording(seed: int, seconds: float = 1.0) -> Image:
    """A file of the tests' own: the samples."""
    random = np.random.default_rng(seed)
    samples = random.normal(0, 4000, int(seconds * 16_000)).astype(np.int16)
    return Image(samples.tobytes(), kind="audio")


def sound(data: bytes) -> NDArray[np.int16]:
    return np.frombuffer(data, np.int16)


def decoded(each: Image) -> DecodedImage | DecodedAudio:
    return picture(each.data) if each.kind == "image" else DecodedAudio(sound(each.data))


@dataclass
class Harness:
    """A loaded model with what the tests do with it."""

    plan: LoadPlan
    model: LoadedBackend
    engine: Engine
    library: ImageCache
    told: dict[str, list[TokenLogprob]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    errors: dict[str, HearthError] = field(default_factory=dict)

    def submit(self, id: str, text: str, images: Sequence[Image], tokens: int = TOKENS) -> None:
        head, *rest = text.split(MARK)
        encode = self.model.tokenizer.encode
        prompt = encode(head, add_bos=True, parse_special=True)
        parts = {}
        for each, piece in zip(images, rest, strict=True):
            prompt += self.library.tokens(each)
            prompt += encode(piece, add_bos=False, parse_special=True)
            parts |= self.library.encode(each)
        sampling = SamplingParams(temperature=0.0, logprobs=5)
        request = GenerateRequest(id, sampling, max_tokens=tokens, ignore_eos=True)
        self.engine.submit(request, prompt, parts=parts)

    def run(self) -> None:
        while self.engine.busy:
            self.step()

    def step(self) -> None:
        outcome = self.engine.step()
        for id, delta in outcome.deltas:
            self.told.setdefault(id, []).extend(delta.logprobs)
            if delta.finish is not None:
                self.cached[id] = delta.finish.usage.cached_tokens
        self.errors.update(outcome.errors)

    def matches(self, id: str, text: str, images: Sequence[Image]) -> None:
        """The answer is llama.cpp's."""
        assert id in self.told, self.errors
        pictures = [decoded(each) for each in images]
        expected = _reference(self.plan, text, pictures, len(self.told[id]))
        for told, (token, values) in zip(self.told[id], expected, strict=True):
            assert told.token == token
            assert told.logprob == pytest.approx(values[token], abs=TOLERANCE)
            for other, _, nats in told.top:
                assert nats == pytest.approx(values[other], abs=TOLERANCE)


@dataclass
class HalfRight:
    """Proposes two tokens of the answer, and one that is not next."""

    answer: list[int]

    def propose(self, running: RunningSequence, limit: int) -> Proposals:
        at = len(running.tokens) - running.sequence.prompt_length
        wrong = [(token + 1) % 256 for token in self.answer[at + 2 : at + 3]]
        found = [*self.answer[at : at + 2], *wrong][:limit]
        return found, [0.9] * len(found)


def _reference(
    plan: LoadPlan, text: str, pictures: list[DecodedImage | DecodedAudio], count: int
) -> list[Step]:
    return greedy(plan, text, pictures, count)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, VisionFiles]:
    folder = tmp_path_factory.mktemp("vision")
    heard = {kind: write_audio_model(folder, kind) for kind in AUDIO_KINDS}
    return {kind: write_vision_model(folder, kind) for kind in KINDS} | heard


Load = Callable[..., Harness]


@pytest.fixture
def harness(files: dict[str, VisionFiles], request: pytest.FixtureRequest) -> Iterator[Load]:
    loaded: list[LoadedBackend] = []

    def make(kind: str, **fields: object) -> Harness:
        plan = LoadPlan(
            path=str(files[kind].model),
            backend="llamacpp",
            context_length=1024,
            pool_tokens=1024,
            max_sequences=8,
            batch_tokens=32,
            threads=1,
            kv_cache_type="f32",
            flash_attention=False,
            projector=str(files[kind].projector),
        )
        plan = replace(plan, **fields)  # type: ignore[arg-type]
        model = load(plan, lambda share: None)
        loaded.append(model)
        assert model.vision is not None
        drafts = Speculation(plan.draft_tokens) if plan.draft_tokens else None
        engine = Engine(
            model.backend, model.tokenizer, swap_bytes=plan.swap_bytes, speculation=drafts
        )
        return Harness(plan, model, engine, ImageCache(model.vision, picture, sound))

    yield make
    for model in loaded:
        model.backend.close()


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


PROMPTS = {
    "one image": (HEAD + MARK + " is<|im_end|>\n", (image(1),)),
    "image first": (MARK + "the fire", (image(2),)),
    "two images": (HEAD + MARK + " and " + MARK + " is", (image(1), image(3, 48, 96))),
    "the same twice, at once": (HEAD + MARK + MARK + "is", (image(4), image(4))),
    "image last": (HEAD + MARK, (image(5),)),
    "small": (HEAD + MARK + "is", (image(6, 9, 7),)),
}


def test_images_in_one_batch_give_what_llama_cpp_gives(kind: str, harness: Load) -> None:
    run = harness(kind)
    for name, (text, images) in PROMPTS.items():
        run.submit(name, text, images)
    run.submit("none", HEAD, ())
    run.run()
    for name, (text, images) in PROMPTS.items():
        run.matches(name, text, images)
    run.matches("none", HEAD, ())


@pytest.mark.parametrize("heard", ["ultravox", pytest.param("qwen2a", marks=pytest.mark.long)])
def test_recordings_give_what_llama_cpp_gives(heard: str, harness: Load) -> None:
    run = harness(heard, context_length=2048, pool_tokens=8192)
    prompts = {
        "one": (HEAD + MARK + " is<|im_end|>\n", (recording(1),)),
        "two": (MARK + " and " + MARK + " is", (recording(1), recording(2, 0.5))),
        "more than 30 s": (HEAD + MARK + " is", (recording(3, 31.0),)),
    }
    for name, (text, recordings) in prompts.items():
        run.submit(name, text, recordings)
    run.run()
    for name, (text, recordings) in prompts.items():
        run.matches(name, text, recordings)
    longer = prompts["one"][0] + "and the fire"
    run.submit("again", longer, (recording(1),))
    run.run()
    run.matches("again", longer, (recording(1),))
    assert run.cached["again"] > 300, "the recording was not computed again"
    with pytest.raises(InvalidRequest, match=r"shorter than 0\.1 s"):
        run.submit("short", MARK, (recording(4, 0.01),))


def test_a_conversation_goes_on_after_its_image(kind: str, harness: Load) -> None:
    run = harness(kind)
    text = HEAD + MARK + " is warm"
    run.submit("first", text, (image(1),))
    run.run()
    longer = text + " and the fire is " + MARK + " hearth"
    run.submit("second", longer, (image(1), image(2)))
    run.run()
    run.matches("second", longer, (image(1), image(2)))
    tokens = run.model.tokenizer.encode(text.replace(MARK, ""), add_bos=True, parse_special=True)
    assert run.cached["second"] > len(tokens), "the image was not computed again"


def test_another_image_in_the_same_place_shares_the_text_only(kind: str, harness: Load) -> None:
    run = harness(kind)
    text = HEAD + MARK + " is warm"
    run.submit("first", text, (image(1),))
    run.run()
    run.submit("second", text, (image(2),))
    run.run()
    run.matches("second", text, (image(2),))
    head = run.model.tokenizer.encode(HEAD, add_bos=True, parse_special=True)
    assert len(head) <= run.cached["second"] <= len(head) + 2


def test_requests_at_once_share_a_beginning_with_an_image(kind: str, harness: Load) -> None:
    run = harness(kind)
    text = HEAD + MARK + " is warm and "
    for end in ("fire", "the", "hearth"):
        run.submit(end, text + end, (image(1),))
    run.run()
    for end in ("fire", "the", "hearth"):
        run.matches(end, text + end, (image(1),))
    assert sum(cached > 0 for cached in run.cached.values()) == 2


def test_an_image_is_computed_again_after_preemption(kind: str, harness: Load) -> None:
    run = harness(kind)
    text = HEAD + MARK + " is warm and "
    run.submit("a", text + "fire", (image(1),), 20)
    run.submit("b", "the" + text, (image(2),), 20)
    for _ in range(12):
        run.step()
    run.engine.scheduler.preemptions = 0
    assert run.engine.scheduler.relieve()
    run.run()
    assert run.engine.scheduler.preemptions == 1
    run.matches("a", text + "fire", (image(1),))
    run.matches("b", "the" + text, (image(2),))


@pytest.mark.parametrize("answer", [1, 6])  # the last token is not in the cache
def test_an_image_comes_back_from_the_swap(kind: str, harness: Load, answer: int) -> None:
    run = harness(kind, max_sequences=1, swap_bytes=1 << 26)
    text = HEAD + MARK + " is warm"
    run.submit("first", text, (image(1),), answer)
    run.run()
    run.submit("other", "the fire is warm and " * 3, ())
    run.run()
    run.submit("again", text + " and " + MARK, (image(1), image(2)))
    run.run()
    whole = run.model.backend.capacity.window
    assert whole is (kind == "gemma3"), "its copies lack what the attention window hides"
    used = run.cached["again"] > len(run.library.tokens(image(1)))
    assert used or (whole and answer > 1), "all of the copy is wanted, or it may be cut"
    run.matches("again", text + " and " + MARK, (image(1), image(2)))


def test_drafts_after_an_image_change_nothing(kind: str, harness: Load) -> None:
    run = harness(kind, draft_tokens=4)
    text = HEAD + MARK + " is"
    answer = [token for token, _ in _reference(run.plan, text, [picture(image(1).data)], 12)]
    drafts = run.engine.speculation
    assert drafts is not None
    half_right = HalfRight(answer)
    with patch.object(PromptLookup, "propose", lambda _, *asked: half_right.propose(*asked)):
        run.submit("a", text, (image(1),), 12)
        run.run()
    assert 0 < drafts.confirmed < drafts.proposed
    run.matches("a", text, (image(1),))


def test_a_step_whose_image_finds_no_room_changes_nothing(kind: str, harness: Load) -> None:
    run = harness(kind, pool_tokens=256, context_length=256)
    backend, library = run.model.backend, run.library
    sampler = backend.create_sampler(SamplingParams(temperature=0.0))
    filler = [20 + at % 200 for at in range(32)]
    for at in range(8):
        part = filler if at < 7 else filler[:28]
        backend.step([Row(0, part, 32 * at)])
    shown = image(1, 32, 32)
    numbers = library.tokens(shown)
    parts = library.encode(shown)
    first, part = next(iter(parts.items()))
    start = numbers.index(first)
    row = Row(1, numbers[start : start + part.tokens], 0, sampler, image=part)
    if part.tokens > 4:
        with pytest.raises(BackendError):
            backend.step([row])
    backend.trim(0, 32)
    (sampled,) = backend.step([row])
    assert sampled.sequence == 1


def test_a_projector_for_another_width_is_refused_with_both(
    files: dict[str, VisionFiles], harness: Load, tmp_path: Path
) -> None:
    wrong = write_vision_model(tmp_path, "idefics3", width=48)
    with pytest.raises(HearthError, match=r"64.*48"):
        harness("idefics3", projector=str(wrong.projector))


def test_a_model_file_is_no_projector(files: dict[str, VisionFiles], harness: Load) -> None:
    with pytest.raises(HearthError, match="architecture is llama"):
        harness("idefics3", projector=str(files["idefics3"].model))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 200), (200, 1), (7, 900)])
def test_pictures_of_odd_sizes_are_read_or_refused(
    kind: str, harness: Load, width: int, height: int
) -> None:
    run = harness(kind)
    if kind == "idefics3" and (width, height) != (1, 1):
        with pytest.raises(InvalidRequest, match=f"{width} x {height} pixels"):
            run.library.tokens(image(1, width, height))
    else:
        run.submit("x", HEAD + MARK, (image(1, width, height),))
        run.run()
        run.matches("x", HEAD + MARK, (image(1, width, height),))
