"""hearth open: Open hearth's page, in a window of its own."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    tab: Annotated[
        bool, typer.Option("--tab", help="In the default browser instead of its own window")
    ] = False,
) -> None:
    """Open hearth's page, and start the daemon if it does not run.

    The window needs Chromium, Chrome, Edge, Brave or Vivaldi; without them, and where BROWSER is
    set, the page opens in the default browser.
    """
    from cli.browser import show
    from cli.connection import connect

    show(f"{connect().base_url}/", own_window=not tab)
