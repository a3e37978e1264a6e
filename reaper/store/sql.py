"""The whole store, and a copy of it made while it is in use."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from reaper.errors import StoreError
from reaper.store.acting import Acting
from reaper.store.dialect import explained
from reaper.store.intentions import Intentions
from reaper.store.inventory import Inventory
from reaper.store.record import Record
from reaper.store.reports import Reports
from reaper.store.shelves import Shelves


class SqlStore(Reports, Inventory, Shelves, Intentions, Acting, Record):
    """
    reaper.ports.Store over SQLAlchemy. Made by open_store. One object serves all threads of a process, and several
    processes use one file.
    """

    def backup(self, path: str | Path) -> None:
        """
        A whole, consistent copy as one file (0600), made while others read and write. Raises StoreError when the file is
        there already. To restore it, stop every reaper, put it in the store's place and remove the old -wal and -shm.
        """
        target = Path(path)
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StoreError(f"no backup was written to {target}: {error.strerror}; name a new file in a folder we may write") from error
        try:
            with self._read() as connection:
                source = connection.connection.driver_connection
                if not isinstance(source, sqlite3.Connection):
                    raise StoreError(f"{self.where} is not a file of ours: make the backup with pg_dump or the server's own")
                _copy(source, target)
        except BaseException:
            target.unlink(missing_ok=True)  # half a copy must not look like one
            raise


def _copy(source: sqlite3.Connection, target: Path) -> None:
    try:
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
    except sqlite3.Error as error:
        raise explained(error, str(target)) from error
