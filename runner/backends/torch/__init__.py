"""Hugging Face checkpoints and GGUF files on torch: paged cache, own decoders, kernels' ops.

load is the way in. Nothing above this package imports torch; nothing in it knows requests.
"""

from runner.backends.torch.availability import require_torch

require_torch()

from runner.backends.torch.loading.loader import load  # noqa: E402

__all__ = ["load"]
