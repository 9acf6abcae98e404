"""hearth tray: Show an icon in the desktop's tray."""

from __future__ import annotations

from cli.errors import CliError


def command() -> None:
    """Show an icon in the desktop's tray. Its menu lists the models in memory, unloads them, opens
    the page and stops hearth.

    Runs until the session ends or you choose Quit tray. Starts the daemon only if you open the
    page. hearth service install --tray starts it at login. Needs Linux and the extra desktop.
    """
    import asyncio
    from functools import partial

    from cli.tray import require_tray
    from cli.tray.daemon_state import observe
    from runner.notification import has_bus
    from runner.settings import load

    settings = load()
    require_tray()
    if not has_bus():
        raise CliError(
            "there is no session bus here (DBUS_SESSION_BUS_ADDRESS), so no desktop with a tray: "
            "run hearth tray in a terminal of the desktop"
        )
    from cli.tray.session import run_verb, show_tray

    asyncio.run(show_tray(partial(observe, settings), run_verb))
