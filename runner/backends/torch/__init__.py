"""Hugging Face checkpoints and GGUF files on torch: paged cache, own decoders, kernels' ops.

load is the way in; join and follow are those of the other processes of a model that several compute
(parallel/). Nothing above this package imports torch; nothing in it knows requests.
"""

from runner.backends.torch.availability import require_torch

require_torch()

from runner.backends.torch.loading.loader import load  # noqa: E402
from runner.backends.torch.parallel.follower import follow, join, version  # noqa: E402

__all__ = ["follow", "join", "load", "version"]
