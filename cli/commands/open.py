"""hearth open: Open hearth's web page in its own window."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    tab: Annotated[
        bool, typer.Option("--tab", help="Use the default browser instead of a separate window")
    ] = False,
) -> None:
    """Open hearth's web page; start the daemon if it is not running.

    The window needs Chromium, Chrome, Edge, Brave or Vivaldi. Without them, or if BROWSER is set,
    the page opens in the default browser.
    """
    from cli.browser import show
    from cli.connection import connect

    show(f"{connect().base_url}/", own_window=not tab)
