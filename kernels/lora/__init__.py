"""LoRA adapters of the tokens of a step, each with its own."""
