"""Who sends a request, as far as the daemon knows: what is stored belongs to its caller, and the
scheduler shares a model between callers.

Set once for each request, when it was let in; a task that a request starts keeps it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """id: the owner of what the request stores, the same for all requests with one key; empty
    without keys. share: the client to which its work is charged: the key, else the user of this
    machine, else the address. admin: it also sees what others have stored. trusted: the daemon's
    own user or an admin key, for which it reads this machine's files and connects to private
    addresses."""

    id: str = ""
    share: str = ""
    admin: bool = True
    trusted: bool = False

    @property
    def sees(self) -> str | None:
        """Whose stored things it may see and change; None: everybody's."""
        return None if self.admin else self.id


OWNER = Caller(trusted=True)

_CURRENT: ContextVar[Caller] = ContextVar("caller", default=OWNER)


def current_caller() -> Caller:
    """The sender of the request that this task answers; the owner where there is none."""
    return _CURRENT.get()


def set_caller(caller: Caller) -> None:
    """From now on this task works for caller."""
    _CURRENT.set(caller)
