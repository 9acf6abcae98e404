"""The values that travel through the runner: requests down, deltas up.

Knows nothing of HTTP, of frames or of a backend. Absence is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

FinishReason = Literal["stop", "length"]
Limit = Literal["num_predict", "context", "generation", "repetition"]
GrammarKind = Literal["json_schema", "regex", "choice", "lark", "gbnf"]
THINK_LEVELS: Final = ("minimal", "low", "medium", "high", "max")
ToolChoiceMode = Literal["none", "auto", "required"]
Pooling = Literal["none", "mean", "cls", "last"]
SplitMode = Literal["none", "layer", "row"]
BackendName = Literal["llamacpp", "torch", "echo", "whisper", "piper"]
SPEECH_BACKENDS: Final = ("whisper", "piper")
# LoRA adapters that act, by the names of their files in the store, each with its scale
Adapters = tuple[tuple[str, float], ...]

UNSAVED_SALT: Final = "unsaved-"  # prompts with a cache_salt that begins so stay off the disk
IMAGE_PLACEHOLDER: Final = "<|hearth_image|>"  # stands in a message's content where an image is


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The order of the steps and the tie rules are written
    down once, in tests/sampling_definition.py.

    temperature 0 is greedy: the other filters are skipped, penalties and bias still apply.
    """

    temperature: float = 0.8
    top_k: int = 40  # 0: off
    top_p: float = 0.9  # 1.0: off
    min_p: float = 0.0  # 0.0: off
    typical_p: float = 1.0  # 1.0: off
    top_n_sigma: float = 0.0  # standard deviations of the logits; 0.0: off
    xtc_probability: float = 0.0  # how often xtc acts; 0.0: off
    xtc_threshold: float = 0.1  # above 0.5: off
    mirostat: int = 0  # 0: off, else the version, 1 or 2; replaces all filters
    mirostat_tau: float = 5.0  # surprise aimed at, in bits
    mirostat_eta: float = 0.1  # how fast it is approached
    repeat_penalty: float = 1.0  # 1.0: off
    repeat_last_n: int = 64  # tokens the penalties look back; 0: none, -1: the whole sequence
    repeat_limit: int = 1024  # tokens of nothing but repetitions that end an answer; 0: never
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0  # strength of dry; 0.0: off
    dry_base: float = 1.75  # its growth with each token repeated; below 1.0: off
    dry_allowed_length: int = 2  # tokens repeated without it
    dry_penalty_last_n: int = -1  # tokens it looks back; 0: none, -1: the whole sequence
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # it sees no run across them
    dry_breakers: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    # dry_breakers: the same as tokens, found by the worker: the first one and what follows it
    dynatemp_range: float = 0.0  # the temperature moves so far both ways; 0.0: fixed
    dynatemp_exponent: float = 1.0  # how it follows the entropy
    samplers: tuple[str, ...] | None = None  # those that act, in their order; None: all, in ours
    sampled_penalties: bool = False  # presence and frequency count all that was sampled, only that
    min_tokens: int = 0  # of the answer, before which nothing ends it
    stop_token_ids: tuple[int, ...] = ()  # end the answer, beside the vocabulary's own end tokens
    end_token_ids: tuple[int, ...] = ()  # both kinds, where min_tokens needs them: by the worker
    allowed_token_ids: tuple[int, ...] = ()  # no others may be generated; none: all may
    bad_words: tuple[str, ...] = ()  # the worker makes banned_runs of them
    banned_runs: tuple[tuple[int, ...], ...] = ()  # runs of tokens that must not be generated
    no_repeat_ngram_size: int = 0  # no run of so many tokens occurs twice; 0: off
    thinking_budget: int = -1  # tokens of reasoning before it is ended; -1: no limit
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit)
    text_bias: tuple[tuple[str, float], ...] = ()  # the worker makes logit_bias of it
    watermark: bool = False  # see runner/watermark.py
    watermark_gamma: float = 0.25  # share of the vocabulary that is green
    watermark_delta: float = 2.0  # added to the logits of green tokens
    seed: int | None = None  # None: a fresh one for each request
    logprobs: int | None = None  # None: off; 0..20: that many alternatives a token
    drawn_logprobs: bool = False  # logprobs are of what the samplers left, as it was drawn from


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must match.

    text is written as kind says: a JSON schema, a regular expression, a JSON array of strings,
    Lark as llguidance has it, or llama.cpp's GBNF. reasoning: the tags around reasoning that
    may precede the match, and precedes it where the prompt has opened it; head: what is written
    before the match where there was none. markers: what Lark may name as marker_0, marker_1, ...
    (the marker itself, a control token where the vocabulary has one) and until_0, until_1, ...
    (any text that ends with the marker). schemas: the JSON schemas inside text, each with its
    place in the request, for errors. begins: a regular expression; where there is one, the
    grammar counts from each match on, for what follows that until nothing may follow, and what
    cannot be enforced is left as it is.
    """

    kind: GrammarKind
    text: str
    param: str | None = None  # the field of the request, for errors
    reasoning: tuple[str, str] | None = None
    head: str | None = None
    markers: tuple[str, ...] = ()
    schemas: tuple[tuple[str, str], ...] = ()
    begins: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningLimit:
    """How reasoning is ended that has had its budget. opening: what it begins with; end: what the
    model ends it with; closing: what is written to end it, end included."""

    opening: str
    end: str
    closing: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model. arguments is the JSON text of an object."""

    id: str
    name: str
    arguments: str


MediaKind = Literal["image", "audio"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as the client sent it: PNG, JPEG, WebP, GIF (the first frame counts) or BMP; or,
    where kind says so, a recording, which goes the same way. salt: what is computed of it is shared
    with requests of the same one only, as cache_salt has it."""

    data: bytes
    salt: str | None = None
    kind: MediaKind = "image"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. content holds IMAGE_PLACEHOLDER once for each of images, in
    order."""

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools may be called. names: of these only; None: all. single: at most one call."""

    mode: ToolChoiceMode = "auto"
    names: tuple[str, ...] | None = None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap to be filled in. prompt: more text before it, in which control tokens count. extra:
    names and texts of other files. tokens: ids by the roles of registry.formats.gguf.fim, set for
    the leased model; suffix_first None: as its family was trained."""

    prefix: str
    suffix: str
    prompt: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    suffix_first: bool | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmbeddingForm:
    """How the vector of a text is made. pooling: how the states of its tokens become one; "none":
    each token has a vector; None: as the model was trained."""

    pooling: Pooling | None = None
    normalize: bool = True


OWN_FORM: Final = EmbeddingForm()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """What is to be generated, from the surface that read it to the engine. Exactly one of
    messages, infill, text and tokens is given: messages are rendered by the model's chat template;
    infill is put together of the vocabulary's own tokens; text is encoded as it stands (with the
    vocabulary's BOS where the model wants one, control tokens in it are honoured); tokens are used
    as they are.

    A surface says what its client wants. runner.server.generation completes that for the leased
    model, one request for each sequence. think_if_able: think counts for models that can reason
    only, and these do without a word. tools: as OpenAI writes them; what a function has in strict
    and lark is for the grammar, not for the model. n_keep: when the context is full the older half
    of what comes after so many tokens of the prompt (-1: all of it) leaves, and the answer goes on;
    None: it ends there.
    """

    id: str = ""  # of the sequence, unique in its worker
    sampling: SamplingParams = field(default_factory=SamplingParams)  # of options and more

    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # checked; the Modelfile's words
    keep_alive_s: float | None = None  # None: the settings'

    messages: tuple[Message, ...] | None = None
    infill: Infill | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    prompt_embeds: bytes | None = None  # a file with a tensor in place of all of them
    preceding: tuple[int, ...] = ()  # tokens before those of messages
    suffix: str | None = None  # what stands after the answer; messages hold what is before it
    continues: bool = False  # the last message is the beginning of the answer
    template: str | None = None  # a chat template in place of the model's
    template_options: Mapping[str, Any] = field(default_factory=dict)
    think: bool | str | None = None  # a text is the effort; None: as the template has it
    think_if_able: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    tools_as_text: bool = False  # messages say what they are; the template does not see them
    truncate_messages: bool = False  # leave out the oldest ones of a conversation too long
    truncate_tokens: bool = False  # and where that is not enough, tokens in the middle; see n_keep

    max_tokens: int | None = None  # None: until the end token or the context is full
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False  # end tokens are left out, as vLLM has it
    bar_end_tokens: bool = False  # they are impossible, as llama-server has ignore_eos
    grammar: Grammar | None = None
    reasoning_limit: ReasoningLimit | None = None  # with sampling.thinking_budget
    context_length: int | None = None  # None: the limit the model was loaded with
    trained_context: int | None = None  # the longest one that the model can have, for errors
    context_shift: bool = False  # n_keep shall be the model's
    n_keep: int | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict)  # by token ids, unchecked
    sampled_penalties: bool = False  # see SamplingParams
    logprobs: int | None = None  # alternatives for each token; None: off
    drawn_logprobs: bool = False  # see SamplingParams
    prompt_logprobs: int | None = None  # the same of the prompt
    return_tokens: bool = False  # the last delta has all tokens, without the end token
    stream_tokens: bool = False  # each delta has the tokens that it stands for
    return_progress: bool = False  # deltas before the first text say how much is computed
    reasoning_tags: tuple[str, str] | None = None  # around the reasoning of a chat answer
    kept_special_tokens: tuple[str, ...] = ()  # control tokens that stay in the text
    priority: int = 0  # lower goes first; equal ones in order of arrival
    client: str = ""  # for whom its work is counted
    cache_salt: str | None = None  # prefixes are shared with requests of the same one only
    slot: int | None = None  # the number under which its sequence may be saved and erased
    shared_prefix: bool = False  # but all may have that of the system messages, or of the text
    public_messages: int = 0  # so many first ones hold nothing that others may not know
    public_tokens: int = 0  # of the prompt, which requests of any salt may have
    form: EmbeddingForm = OWN_FORM  # of vectors, where nothing is generated
    adapter_scales: Mapping[int, float] | None = None  # by number, others 0; None: the model's
    adapters: Adapters = ()  # what that comes to
    normalized: tuple[str, ...] = ()  # names of the rules of runner.chat.agent_rules applied to it


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A chosen token, its log-probability (nats, of the softmax of the raw logits) and the
    most likely alternatives, best first."""

    token: int
    piece: bytes
    logprob: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt with its log-probability as in TokenLogprob; None for the first one,
    which nothing precedes. piece: control tokens have the bytes of their names."""

    token: int
    piece: bytes
    logprob: float | None
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request used. Durations in seconds, by the monotonic clock.

    queue_s: from arrival in the worker to the first prefill chunk; prefill_s: from there to
    the first token; decode_s: from the first token to the last.
    """

    prompt_tokens: int
    cached_tokens: int  # of the prompt, taken from the prefix cache
    completion_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    drafted_tokens: int = 0  # proposed before they were computed
    confirmed_tokens: int = 0  # of them
    normalized: tuple[str, ...] = ()  # as the request has it


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a sequence ended. stop_string is the one that matched, if one did. limit: what ended one
    of the reason length; generation is that of answers without a limit (context_shift.py).
    messages_dropped: how many of the conversation's oldest messages were left out to fit the
    context; tokens_dropped: the same of the prompt's tokens, at least. shifted_tokens: how many
    left it for the answer to go on."""

    reason: FinishReason
    usage: Usage
    stop_string: str | None = None
    messages_dropped: int = 0
    tokens_dropped: int = 0
    tokens: tuple[int, ...] = ()  # of prompt and answer, where the request asks for them
    shifted_tokens: int = 0
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How far a prompt is computed. processed counts the cached tokens too; time_s is since its
    first step began."""

    total: int
    cached: int
    processed: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was left out of a prompt that is too long; see Finish."""

    messages: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What one engine step added to one request. text may be empty while a stop string or a
    character is incomplete. The last delta of a request carries finish. prompt: tokens of the
    prompt, where the request asks for their log-probabilities; all of them before the first of
    the answer. progress: of the prompt, where the request asks for it; such a delta has no text.
    dropped: with the first delta, where the prompt was too long. tokens: where the request asks
    for them, an end token too."""

    text: str
    token_count: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Finish | None = None
    prompt: tuple[PromptToken, ...] = ()
    progress: PromptProgress | None = None
    dropped: Dropped | None = None
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One vector for each input, in order, and the tokens they cost."""

    vectors: tuple[tuple[float, ...], ...]
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """A worker's counters since its start, and its state now."""

    steps: int
    running: int
    waiting: int
    pool_tokens: int
    pool_used: int
    cached_tokens: int
    completion_tokens: int
    preemptions: int
    cancelled: int
    rss_bytes: int
    drafted_tokens: int = 0  # proposed before they were computed
    confirmed_tokens: int = 0  # of them
    paused: int = 0  # sequences whose answers nobody reads
    step_age_s: float | None = None  # how long the step in progress has run; None: no step


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a worker shall load a model: decided by the daemon's memory plan."""

    path: str
    backend: BackendName
    context_length: int
    pool_tokens: int
    max_sequences: int  # ids of the cache, for running sequences and for finished ones kept
    max_pool_tokens: int | None = None  # that the pool may grow to; None: it does not grow
    batch_tokens: int = 512
    max_running: int | None = None  # most sequences in one step; None: max_sequences
    idle_tokens: int | None = None  # most tokens of finished sequences kept; None: pool_tokens
    swap_bytes: int = 0  # most memory for copies of finished sequences that are not kept
    threads: int | None = None  # None: up to one per physical core of this process; 1 if tiny
    gpu_layers: int = 0
    kv_cache_type: str = "f16"
    window_cache: bool = False  # layers with an attention window hold little more (llamacpp)
    flash_attention: bool | None = None  # None: where the backend supports it
    use_mmap: bool = True
    gpu_devices: tuple[str, ...] = ()  # names of those with layers (llamacpp); empty: all
    split_mode: SplitMode = "layer"  # how they share the model
    tensor_split: tuple[float, ...] = ()  # in which proportions; of layers: how many each has
    cpu_moe_layers: int = 0  # the first ones, whose experts stay with the processor
    use_mlock: bool = False
    numa: bool = False
    rope_frequency_base: float = 0.0  # 0: the model's own, as with the scale
    rope_frequency_scale: float = 0.0
    native_kernels: bool = True  # hearth's own for the processor, where they were compiled
    embedding: bool = False
    ranking: bool = False  # with embedding: pairs of texts are scored
    adapters: tuple[tuple[str, float], ...] = ()  # (path, scale) of those there from the start
    # of a model that generates, requests say which ones act, and how strongly
    draft_tokens: int | None = 0  # most that are proposed for a sequence and step, to be confirmed
    # None: as many as pay, where the bits of a token do not depend on the others of a step
    draft_path: str | None = None  # a model that proposes, beside what was written before
    projector: str | None = None  # path of what makes embeddings of images (llamacpp)
    sequence_tokens: int | None = None  # most of one that asks for more; None: context_length
    quantize: str | None = None  # what floats become while loading (torch): int8, int4 or fp8
    step_limit_s: float | None = None  # a step beyond it ends the worker; None: none does
    tensor_parallel: int = 1  # processes that share every layer (torch)
    pipeline_parallel: int = 1  # groups of them that share the layers (torch)
    devices: tuple[int, ...] = ()  # numbers of the GPUs of the processes; empty: the first ones

    @property
    def ranks(self) -> int:
        """How many processes compute the model together."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def max_context_length(self) -> int:
        """The most tokens of one sequence, whatever its request asks for."""
        return max(self.context_length, self.sequence_tokens or 0)
