"""What OpenAI, vLLM, llama.cpp's server, TGI and other servers take and this one does not honour:
each with what to do instead."""

from __future__ import annotations

from typing import Final

from runner.server.refused_fields import Refusal, Refusals

_BEAMS = "there is no beam search; use n or best_of"
_VLLM = "it belongs to vLLM's own deployment"
_MEDIA = "images are read as the model's projector has it"
_BOS = "a prompt begins as the model wants it; send the prompt as token ids for another beginning"
_ADAPTER: Final = "name the model that `hearth adapter add` makes of the adapter in model"
_WATERMARK = "it is watermark, watermark_gamma and watermark_delta here"

GENERATE_REFUSED: Final[Refusals] = {
    # vLLM
    "use_beam_search": Refusal(_BEAMS),
    "length_penalty": Refusal(_BEAMS, (1,)),
    "early_stopping": Refusal(_BEAMS),
    "include_stop_str_in_output": Refusal("the text ends before the stop string; add it yourself"),
    "skip_special_tokens": Refusal("control tokens never show; ask for return_token_ids", (True,)),
    "truncate_prompt_tokens": Refusal("send a shorter prompt; in chats truncation: auto", (-1,)),
    "truncation_side": Refusal("send a shorter prompt; in chats truncation: auto"),
    "repetition_detection": Refusal("repeat_limit ends an answer that only repeats itself"),
    "logprob_token_ids": Refusal("ask for logprobs, which give the likeliest tokens"),
    "return_tokens_as_token_ids": Refusal("ask for return_token_ids"),
    "return_token_offsets": Refusal("ask for logprobs, which have text offsets in /v1/completions"),
    "return_prompt_text": Refusal("POST /apply-template shows the prompt"),
    "return_weight_versions": Refusal(_VLLM),
    "routed_experts_prompt_start": Refusal(_VLLM),
    "mm_payload": Refusal(_MEDIA),
    "return_mm_kwargs": Refusal(_MEDIA),
    "media_io_kwargs": Refusal(_MEDIA),
    "mm_processor_kwargs": Refusal(_MEDIA),
    "kv_transfer_params": Refusal(_VLLM),
    "ec_transfer_params": Refusal(_VLLM),
    "vllm_xargs": Refusal(_VLLM),
    "request_id": Refusal("the id of an answer is made here; send an X-Request-Id header"),
    "stream_interval": Refusal("tokens are sent as they come", (1,)),
    "watermarking": Refusal(_WATERMARK),
    "prompt_embeds": Refusal("send them to /v1/completions, of a model on the backend torch"),
    "guided_decoding_backend": Refusal("one library does all grammars; leave it out"),
    "guided_whitespace_pattern": Refusal("write the white space into the grammar or the schema"),
    "lora_request": Refusal(_ADAPTER),
    # llama.cpp's server
    "n_probs": Refusal("ask for logprobs"),
    "post_sampling_probs": Refusal("logprobs are of the model, before sampling"),
    "min_keep": Refusal("every sampler leaves one token", (0, 1)),
    "adaptive_target": Refusal("use min_p or top_n_sigma", (-1,)),
    "adaptive_decay": Refusal("use min_p or top_n_sigma"),
    "grammar_lazy": Refusal("a grammar holds from the first token of the answer"),
    "grammar_triggers": Refusal("a grammar holds from the first token of the answer"),
    "preserved_tokens": Refusal("the model's family says which control tokens are kept"),
    "reasoning_format": Refusal("reasoning comes in reasoning_content", ("auto", "deepseek")),
    "thinking_forced_open": Refusal("the chat template decides how an answer begins"),
    "reasoning_budget_message": Refusal("reasoning is ended by the model's own end tag"),
    "reasoning_control": Refusal("reasoning goes on until its budget, or the client leaves"),
    "parse_tool_calls": Refusal("leave tools out to get calls as text", (True,)),
    "verbose": Refusal("`hearth render` and POST /apply-template show the prompt"),
    "t_max_predict_ms": Refusal("use max_tokens, or close the connection"),
    "t_max_prompt_ms": Refusal("use max_tokens, or close the connection"),
    "n_indent": Refusal("use a grammar", (0,)),
    "n_discard": Refusal("half of a full context leaves, on Ollama's routes", (0,)),
    "response_fields": Refusal("the whole answer is sent"),
    # TGI
    "do_sample": Refusal("temperature 0 is greedy, any other draws", (True,)),
    "max_new_tokens": Refusal("it is max_tokens here"),
    "return_full_text": Refusal("use echo in /v1/completions"),
    "details": Refusal("ask for logprobs"),
    "decoder_input_details": Refusal("ask for prompt_logprobs"),
    "top_n_tokens": Refusal("ask for logprobs or top_logprobs"),
    "truncate": Refusal("send a shorter prompt; in chats truncation: auto"),
    "adapter_id": Refusal(_ADAPTER),
    "guideline": Refusal("write it as a system message"),
    "tool_prompt": Refusal("the chat template tells the model of its tools"),
    # Ollama, where its fields are sent to the wrong route
    "_debug_render_only": Refusal("POST /apply-template shows the prompt"),
    # SGLang and others
    "regex": Refusal("it is structured_outputs.regex here"),
    "ebnf": Refusal("it is grammar here"),
    "custom_logit_processor": Refusal("code of clients is not run"),
    "lora_path": Refusal(_ADAPTER),
    "top_a": Refusal("use min_p"),
    "tfs_z": Refusal("use min_p", (1,)),
    "epsilon_cutoff": Refusal("use min_p", (0,)),
    "eta_cutoff": Refusal("use min_p", (0,)),
    "smoothing_factor": Refusal("use dynatemp_range", (0,)),
    "encoder_repetition_penalty": Refusal("use repeat_penalty", (1,)),
    "penalty_alpha": Refusal("there is no contrastive search"),
    "num_beams": Refusal(_BEAMS, (1,)),
}

CHAT_REFUSED: Final[Refusals] = {
    **GENERATE_REFUSED,
    "functions": Refusal("it is obsolete; use tools", empty_asks=True),
    "function_call": Refusal("it is obsolete; use tool_choice"),
    "web_search_options": Refusal(
        "web search is not built in; provide it as a tool", empty_asks=True
    ),
    "moderation": Refusal("there is no moderation here"),
    "verbosity": Refusal("say in a message how long the answer should be", ("medium",)),
    "echo": Refusal("a conversation is not sent back; /v1/completions has echo"),
    "documents": Refusal("send them in a message, or as chat_template_kwargs.documents"),
    "add_special_tokens": Refusal(_BOS),
    "suffix": Refusal("use /v1/completions"),
}

COMPLETION_REFUSED: Final[Refusals] = {
    **GENERATE_REFUSED,
    "add_special_tokens": Refusal(_BOS, (True,)),
}

RESPONSES_REFUSED: Final[Refusals] = {
    "access_programs": Refusal("it is only available on OpenAI's servers"),
    "background_options": Refusal("background answers begin at once"),
    "image": Refusal(_MEDIA),
    "moderation": Refusal("there is no moderation here"),
    "include_reasoning": Refusal("reasoning is an item of its own; leave it out", (True,)),
    "enable_response_messages": Refusal("POST /apply-template shows the prompt"),
    "previous_input_messages": Refusal("send the conversation as input"),
    **{
        name: GENERATE_REFUSED[name]
        for name in (
            *("skip_special_tokens", "include_stop_str_in_output", "request_id", "mm_payload"),
            *("media_io_kwargs", "mm_processor_kwargs", "return_mm_kwargs", "vllm_xargs"),
            *("kv_transfer_params", "ec_transfer_params", "watermarking"),
        )
    },
    **dict.fromkeys(
        (
            *("top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
            *("seed", "stop", "stop_token_ids", "logit_bias"),
        ),
        Refusal("send it in options, by the name that parameters have"),
    ),
    "ignore_eos": Refusal("use /v1/chat/completions"),
    "structured_outputs": Refusal("it is text.format here"),
    "chat_template_kwargs": Refusal("use /v1/chat/completions"),
}

STREAM_OPTIONS_REFUSED: Final[Refusals] = {
    "continuous_usage_stats": Refusal("the usage comes with the last event: include_usage"),
}

EMBEDDING_REFUSED: Final[Refusals] = {
    "add_special_tokens": Refusal("an input begins as the model wants it", (True,)),
    "truncate_prompt_tokens": Refusal("truncate: true cuts an input at the model's limit", (-1,)),
    "truncation_side": Refusal("the end of an input that is too long is cut", ("right",)),
    "truncation_direction": Refusal("the end of an input that is too long is cut", ("Right",)),
    "padding": Refusal("inputs are not padded"),
    "embed_dtype": Refusal("vectors are of 32-bit floats", ("float32",)),
    "endianness": Refusal("base64 is little-endian", ("native", "little")),
    "request_id": Refusal("send an X-Request-Id header"),
    "mm_processor_kwargs": Refusal(_MEDIA),
    "media_io_kwargs": Refusal(_MEDIA),
    "messages": Refusal("send texts as input"),
    "chat_template": Refusal("inputs are embedded as they stand"),
    "chat_template_kwargs": Refusal("inputs are embedded as they stand"),
    "prompt_name": Refusal("write the prompt before the input"),
    "input_type": Refusal("write the model's prefix before the input"),
    "task": Refusal("vectors are what this route gives", ("embed",)),
    "late_chunking": Refusal("send the chunks as inputs"),
}
