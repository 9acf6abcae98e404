"""transformers and sentence-transformers, in an environment of their own: one job a process.

stdin: {"job": "templates" | "logprobs" | "vectors", "arguments": {...}}; stdout: the
result as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any


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


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    jobs = {"templates": templates, "logprobs": logprobs, "vectors": vectors}
    json.dump(jobs[asked["job"]](**asked["arguments"]), sys.stdout)
