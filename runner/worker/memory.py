"""The memory of this process. Knows nothing of models."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":

    def resident_bytes() -> int:
        """Memory now in RAM."""
        import psutil

        return int(psutil.Process().memory_info().rss)
else:
    import resource

    _STATM = Path("/proc/self/statm")
    _MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024

    def resident_bytes() -> int:
        """Memory now in RAM; where the system does not tell, the most there ever was."""
        try:
            pages = int(_STATM.read_text().split()[1])
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES
        return pages * os.sysconf("SC_PAGE_SIZE")
