"""From a load plan to an engine: which backend, which template, what the daemon is told.

Knows the backends by their module names only, so that a worker imports no more than it uses.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from pathlib import Path

from modelfile.templates.dialect import JINJA
from runner.backends.backend import Followers, LoadedBackend, LoadProgress
from runner.engine.draft_model import DraftModel
from runner.engine.engine import Engine
from runner.engine.speculation import MAX_TOKENS, Speculation
from runner.errors import HearthError, ModelLoadFailed
from runner.types import GenerateRequest, LoadPlan
from runner.worker.decoder_process import LIMIT_S, DecoderProcess
from runner.worker.grammar_compiler import GrammarCompiler
from runner.worker.images import ImageCache
from runner.worker.prompt_embeds import EmbeddedPrompts
from runner.worker.prompts import PromptEncoder
from runner.worker.protocol import WorkerInfo
from runner.worker.sampling_resolver import SamplingResolver

log = logging.getLogger(__name__)

MAX_AUDIO_S = 600  # of a recording in a conversation
DECODE_SHARE = 0.8  # of the limit of a step, which is that of an image from its file to its tokens


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRuntime:
    """A model ready to serve."""

    engine: Engine
    prompts: PromptEncoder
    model: LoadedBackend
    grammars: GrammarCompiler
    sampling: SamplingResolver
    embedded: EmbeddedPrompts
    images: ImageCache | None = None

    def context_of(self, request: GenerateRequest) -> int:
        """The most tokens of a request's prompt and answer."""
        limit = self.engine.context_length
        return min(request.context_length or limit, limit)

    def info(self) -> WorkerInfo:
        """What the ready frame says of it."""
        words = self.model.tokenizer
        bos, eos = (None if id is None else words.text(id) for id in (words.bos, words.eos))
        return WorkerInfo(vocabulary=self.engine.capacity.vocabulary, bos=bos, eos=eos)


def load(
    plan: LoadPlan, progress: LoadProgress, followers: Followers | None = None
) -> ModelRuntime:
    """Load the model. followers: the other processes that compute it. Raises HearthError: what the
    backend says, or ModelLoadFailed."""
    model = _load_model(plan, progress, followers)
    images = None
    if model.vision is not None:
        limit_s = min(LIMIT_S, DECODE_SHARE * (plan.step_limit_s or LIMIT_S / DECODE_SHARE))
        images = ImageCache(
            model.vision,
            DecoderProcess("image", limit_s).image,
            DecoderProcess("audio", limit_s, max_audio_s=MAX_AUDIO_S).audio,
        )
    prompts = PromptEncoder(
        model.tokenizer,
        model.chat_template,
        tool_template=model.tool_template,
        engine=JINJA,
        images=images,
    )
    engine = Engine(
        model.backend,
        model.tokenizer,
        max_running=plan.max_running,
        idle_tokens=plan.idle_tokens,
        swap_bytes=plan.swap_bytes,
        speculation=_speculation(plan, model),
    )
    for path, _ in () if plan.embedding else plan.adapters:
        engine.adapters.load(Path(path).name, Path(path))
    if plan.step_limit_s is not None:
        engine.stay_within(plan.step_limit_s)
    grammars, sampling = GrammarCompiler(model.tokenizer), SamplingResolver(model.tokenizer)
    embedded = EmbeddedPrompts(model.backend.capacity)
    return ModelRuntime(engine, prompts, model, grammars, sampling, embedded, images)


def _load_model(
    plan: LoadPlan, progress: LoadProgress, followers: Followers | None = None
) -> LoadedBackend:
    try:
        backend = importlib.import_module(f"runner.backends.{plan.backend}")
        others = () if followers is None else (followers,)
        model: LoadedBackend = backend.load(plan, progress, *others)
    except HearthError:
        raise
    except Exception as error:
        log.exception("the backend failed to load %s", plan.path)
        raise ModelLoadFailed(
            f"the {plan.backend} backend cannot load the model: {error}"
        ) from error
    return model


def _speculation(plan: LoadPlan, model: LoadedBackend) -> Speculation | None:
    """What proposes tokens, where the plan wants it and the backend can confirm them."""
    max_tokens = MAX_TOKENS if plan.draft_tokens is None else plan.draft_tokens
    if max_tokens == 0 or model.backend.capacity.draft_tokens == 0:
        return None
    draft_model = None
    if plan.draft_path is not None:
        own = dataclasses.replace(
            plan,
            path=plan.draft_path,
            max_running=None,
            swap_bytes=0,
            adapters=(),
            draft_tokens=0,
            draft_path=None,
            window_cache=False,  # it goes back to where its proposals were wrong
            cpu_moe_layers=0,
            projector=None,
            tensor_parallel=1,
            pipeline_parallel=1,
        )
        draft_model = DraftModel(_load_model(own, lambda _share: None).backend)
    return Speculation(max_tokens, draft_model, model.tokenizer.is_end)
