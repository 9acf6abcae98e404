"""Puts the files and batches of a daemon together: where they are, and what they share."""

from __future__ import annotations

from runner.server.openai.batches.endpoint_call import call
from runner.server.openai.batches.executor import BatchExecutor, Traffic
from runner.server.openai.batches.journal import TABLES, BatchJournal
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import TABLES as FILES
from runner.server.openai.files.file_store import FileStore
from runner.server.services import Services

FOLDER = "files"
FILE_NAME = "files.sqlite3"


def open_batches(services: Services) -> BatchExecutor:
    """The batches of daemon, none of them running yet. They take half of a model's slots."""
    folder = services.settings.state_dir / FOLDER
    database = Database(folder / FILE_NAME, (*FILES, *TABLES), "the index of stored files")
    traffic = Traffic(
        call=lambda endpoint, body: call(services, endpoint, body),
        parallel=max(1, services.settings.num_parallel // 2),
        clear=services.manager.wait_for_starved_loads,
    )
    return BatchExecutor(FileStore(folder, database), BatchJournal(database), traffic)
