"""hearth tray: Show hearth in the tray of the desktop."""

from __future__ import annotations

from cli.errors import CliError


def command() -> None:
    """Show hearth in the tray of the desktop: the models in memory, open the page, unload, stop.

    Goes on until the session ends or Quit tray is chosen, and starts no daemon unless the page is
    opened. hearth service install --tray has it started after login. Needs Linux and the extra
    desktop.
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
