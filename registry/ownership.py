"""The owner of a file, and what others may do with it, as far as os.stat shows."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

if sys.platform == "win32":

    def own_uid() -> int:
        """What os.stat says of every file there: access lists have the owners."""
        return 0

    def permissions(status: os.stat_result) -> int:
        """Those of the owner: the permissions of others are in access lists, which are not read.
        Folders of a user's profile are closed to other users."""
        return status.st_mode & 0o700

    def close_folder(folder: Path) -> bool:
        """Nothing is done. Raises OSError where there is no folder."""
        os.scandir(folder).close()
        return True
else:

    def own_uid() -> int:
        """The user of this process."""
        return os.getuid()

    def permissions(status: os.stat_result) -> int:
        """The permission bits of a file."""
        return stat.S_IMODE(status.st_mode)

    def close_folder(folder: Path) -> bool:
        """Close this user's folder to all others; False: the folder belongs to another user. Raises
        OSError, also for a link."""
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(opened)
            if status.st_uid != own_uid():
                return False
            if permissions(status) & 0o077:
                os.fchmod(opened, 0o700)
            return True
        finally:
            os.close(opened)
