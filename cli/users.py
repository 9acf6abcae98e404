"""The users of this machine: their numbers and names."""

from __future__ import annotations

import sys

if sys.platform == "win32":

    def user_id(name: str) -> int | None:  # noqa: ARG001
        """None: users have no numbers there."""
        return None

    def user_name(uid: int) -> str | None:  # noqa: ARG001
        """None, likewise."""
        return None
else:
    import pwd

    def user_id(name: str) -> int | None:
        """The number of a user; None: there is no such user."""
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            return None

    def user_name(uid: int) -> str | None:
        """The name of a user; None: the number has none."""
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return None
