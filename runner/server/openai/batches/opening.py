"""Puts the files and batches of a daemon together: where they are, and what they share."""

from __future__ import annotations

from runner.server.daemon import Daemon
from runner.server.openai.batches.calling import call
from runner.server.openai.batches.journal import TABLES, Journal
from runner.server.openai.batches.running import Batches, Traffic
from runner.server.openai.database import Database
from runner.server.openai.files.storing import TABLES as FILES
from runner.server.openai.files.storing import FileShelf

FOLDER = "files"
FILE_NAME = "files.sqlite3"


def open_batches(daemon: Daemon) -> Batches:
    """The batches of daemon, none of them running yet. They take half of a model's slots."""
    folder = daemon.settings.state_dir / FOLDER
    database = Database(folder / FILE_NAME, (*FILES, *TABLES), "the index of stored files")
    traffic = Traffic(
        call=lambda endpoint, body: call(daemon, endpoint, body),
        parallel=max(1, daemon.settings.num_parallel // 2),
        clear=daemon.manager.wait_until_roomy,
    )
    return Batches(FileShelf(folder, database), Journal(database), traffic)
