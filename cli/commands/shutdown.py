"""hearth shutdown: Stop the daemon once its answers are complete."""

from __future__ import annotations

from cli.terminal import status


def command() -> None:
    """Stop the daemon and wait until it has ended.

    It takes no more requests; answers in progress have HEARTH_DRAIN_TIMEOUT to finish. Only the
    user who started a daemon can stop it, and only on the same machine.
    """
    from cli.connection import new_client
    from cli.daemon import end_daemon, running
    from cli.service.choice import manager_of
    from runner.settings import load

    client = new_client(load())
    about = running(client)
    if about is None:
        status(f"no daemon is running at {client.base_url}")
        return
    manager = manager_of(about["pid"])
    end_daemon(client, about)
    if manager is not None:
        when = "with the next request" if manager.state().waiting else "at the next login"
        status(
            f"it is a service, which {manager.name} starts again {when}; to end that too: "
            "hearth service uninstall"
        )
