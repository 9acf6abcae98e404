"""The arrays that sampling on the CPU works on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # [vocabulary]
LogitRows = NDArray[np.float32]  # [rows, vocabulary]
TokenIds = NDArray[np.int64]
