"""The system's own program that shows the end of a text file."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.platform == "win32":

    def log_viewer(log: Path, lines: int, follow: bool) -> list[str]:
        """The command that shows the last lines of log and, with follow, those that are added."""
        quoted, wait = str(log).replace("'", "''"), " -Wait" if follow else ""
        script = f"Get-Content -LiteralPath '{quoted}' -Encoding UTF8 -Tail {lines}{wait}"
        return ["powershell.exe", "-NoProfile", "-Command", script]
else:

    def log_viewer(log: Path, lines: int, follow: bool) -> list[str]:
        """The command that shows the last lines of log and, with follow, those that are added, also
        once another file has taken its place."""
        return ["tail", *(("-F",) if follow else ()), "-n", str(lines), str(log)]
