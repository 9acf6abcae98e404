"""Which user's program holds the port to which a command is about to send its key and its text.

Anybody on this machine can listen at hearth's port while no daemon runs. This is checked for each
connection within this machine before anything is sent. Knows nothing of what is sent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from cli.errors import CliError
from cli.users import user_id, user_name
from runner.settings import Settings


def check_server(settings: Settings) -> Callable[[socket.socket], None]:
    """Raises ForeignServer for a connection that a program of another user of this machine answers:
    neither this user, root, nor the one that HEARTH_DAEMON_USER names. A port that no process here
    holds is forwarded by the system, as a container's is."""
    answered: set[str] = set()

    def check(connection: socket.socket) -> None:
        from runner.client import ForeignServer
        from runner.socket_owner import Endpoint, is_local, is_slow, is_trusted, serving_uid

        end, other = (
            Endpoint.of(name) for name in (connection.getpeername(), connection.getsockname())
        )
        if not is_local(end, other) or (is_slow() and answered):
            return
        uid = serving_uid(end, other)
        if not is_trusted(uid) and not _is_named(settings.daemon_user, uid):
            raise ForeignServer(_foreign(end.port, uid))
        answered.add(str(end))

    return check


def _is_named(user: str | None, uid: int | None) -> bool:
    from runner.socket_owner import sees_all_users

    if uid is None:  # nobody's, or nobody's that this system shows
        return sees_all_users() or user is not None
    return user is not None and _uid_of(user) == uid


def _uid_of(user: str) -> int:
    found = int(user) if user.isdecimal() else user_id(user)
    if found is None:
        raise CliError(f"HEARTH_DAEMON_USER={user}: this machine has no such user")
    return found


def _foreign(port: int, uid: int | None) -> str:
    name = None if uid is None else user_name(uid) or str(uid)
    holder = "another user" if name is None else f"user {name}"
    return (
        f"port {port} is held by a program of {holder}, not by your hearth, and nothing was sent "
        f"to it. Set HEARTH_HOST to another address, such as 127.0.0.1:{port + 1}; or, to use the "
        f"daemon of that user, HEARTH_DAEMON_USER={name or 'NAME'}"
    )
