"""Limits of this process (setrlimit). Windows has one of memory alone, and nothing of this has run
there."""

from __future__ import annotations

import sys
from typing import Literal

Limit = Literal["AS", "CORE", "MEMLOCK", "NOFILE"]

if sys.platform == "win32":
    from runner.job_object import join_job

    def limits_of(name: Limit) -> tuple[int | None, int | None]:  # noqa: ARG001
        """The soft and the hard limit; None: there is none."""
        return None, None

    def set_limits(name: Limit, soft: int | None, hard: int | None) -> None:  # noqa: ARG001
        """Set that of memory (AS). Raises OSError for what the system does not allow."""
        if name == "AS" and soft is not None:
            join_job(memory_bytes=soft)
else:
    import resource

    def limits_of(name: Limit) -> tuple[int | None, int | None]:
        """The soft and the hard limit; None: there is none."""
        soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        return _shown(soft), _shown(hard)

    def set_limits(name: Limit, soft: int | None, hard: int | None) -> None:
        """Set both. Raises OSError and ValueError for what the system does not allow."""
        both = _given(soft), _given(hard)
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), both)

    def _shown(limit: int) -> int | None:
        return None if limit == resource.RLIM_INFINITY else limit

    def _given(limit: int | None) -> int:
        return resource.RLIM_INFINITY if limit is None else limit
