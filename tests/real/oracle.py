"""transformers, PEFT and sentence-transformers, in an environment of their own: one job a process.

stdin: {"job": one of JOBS, "arguments": {...}}; stdout: the result as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

TRAINING_STEPS = 6


def templates(
    template: str, bos_token: str, eos_token: str, conversations: list[dict[str, Any]]
) -> list[str | None]:
    """Each conversation as apply_chat_template() renders it; None where the template raises."""
    import jinja2
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({bos_token: 0, eos_token: 1}, unk_token=bos_token)),
        bos_token=bos_token,
        eos_token=eos_token,
        chat_template=template,
    )
    rendered: list[str | None] = []
    for conversation in conversations:
        try:
            rendered.append(tokenizer.apply_chat_template(**conversation, tokenize=False))
        except jinja2.TemplateError:
            rendered.append(None)
    return rendered


def logprobs(path: str, sequences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a GGUF file's weights come to in float32. Of each sequence {"prompt", "tokens",
    "asked"}: the likeliest token in the place of each of its tokens, "best", and the
    log-probabilities there of the tokens asked for, "values"."""
    import torch
    from transformers import AutoModelForCausalLM

    folder, _, name = path.rpartition("/")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    found = []
    for sequence in sequences:
        prompt, tokens = sequence["prompt"], sequence["tokens"]
        with torch.inference_mode():
            rows = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        scores = torch.log_softmax(rows.double(), dim=-1)
        values = scores.gather(1, torch.tensor(sequence["asked"]))
        found.append({"best": scores.argmax(dim=1).tolist(), "values": values.tolist()})
    return found


def vectors(folder: str, sentences: list[str]) -> list[list[float]]:
    """The sentences' vectors by sentence-transformers, in float32."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    found: list[list[float]] = model.encode(sentences, show_progress_bar=False).tolist()
    return found


def adapters(
    base: str, folder: str, tokens: list[int], configs: dict[str, dict[str, Any]], rate: float
) -> None:
    """Train an adapter of each LoraConfig on the tokens for a few steps, with PEFT, and let it save
    it in folder/NAME. folder/NAME.npy and folder/base.npy: the log-probabilities [tokens,
    vocabulary] after each token with it, loaded again, and without. base: a GGUF file, taken in
    float32, or a folder with a config.json that gets random weights, saved there."""
    import numpy as np
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # small products: several threads wait for each other
    made = Path(folder)
    if Path(base).is_dir():
        _random_model(base).save_pretrained(base)
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    else:
        where, file = str(Path(base).parent), Path(base).name
        plain = AutoModelForCausalLM.from_pretrained(where, gguf_file=file, dtype=torch.float32)

    def keep(name: str, computing: Any) -> None:
        with torch.inference_mode():
            rows = computing.eval()(torch.tensor([tokens])).logits[0]
        np.save(made / f"{name}.npy", torch.log_softmax(rows.double(), dim=-1).float().numpy())

    keep("base", plain)
    for number, (name, config) in enumerate(configs.items()):
        torch.manual_seed(number)
        adapted = get_peft_model(deepcopy(plain), LoraConfig(**config))
        saving: dict[str, Any] = {}
        if config.get("init_lora_weights") == "pissa":
            adapted.save_pretrained(made / "first" / name)
            saving = {"path_initial_model_for_weight_conversion": str(made / "first" / name)}
        _train(adapted, tokens, rate)
        adapted.save_pretrained(made / name, **saving)
        keep(name, PeftModel.from_pretrained(deepcopy(plain), made / name))


def _random_model(folder: str) -> Any:
    """As strong as trained ones: those of transformers are nearly constant."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1:
                weights.normal_(std=weights.shape[-1] ** -0.5)
            elif name.endswith("norm.weight"):
                weights.add_(0.1 * torch.randn_like(weights))
    return model


def _train(adapted: Any, tokens: list[int], rate: float) -> None:
    import torch

    trained = [each for each in adapted.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate)
    batch = torch.tensor([tokens])
    adapted.train()
    for _ in range(TRAINING_STEPS):
        adapted(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def lora_config_keys() -> list[str]:
    """What the adapter_config.json of a LoRA adapter may have."""
    from peft import LoraConfig

    return sorted(field.name for field in fields(LoraConfig))


JOBS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (templates, logprobs, vectors, adapters, lora_config_keys)
}

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump(JOBS[asked["job"]](**asked["arguments"]), sys.stdout)
