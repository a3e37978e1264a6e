"""Short transactions on one engine, from many threads and processes at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Table, select
from sqlalchemy.exc import SQLAlchemyError

from reaper.errors import StoreError
from reaper.model.audit import AuditEntry
from reaper.ports import Lease
from reaper.store import tables
from reaper.store.codec import Codec, micros, moment
from reaper.store.dialect import WRITES, driver_error, explained, insert_new, upsert

_ENTRIES = Codec("audit", AuditEntry)


class Transactions:
    """
    What every part of the store stands on. ``where``: the file or URL, for messages, without secrets.

    ``one_connection``: all threads share one connection (":memory:"), so reads take turns as well.
    """

    def __init__(self, engine: Engine, where: str, *, one_connection: bool = False) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{WRITES: True})
        self.where = where
        # Writers of one process queue here: SQLite's own waiting sleeps, up to 100 ms at a time, and is not fair.
        self._turn = threading.RLock()
        self._read_turn = self._turn if one_connection else nullcontext()
        # Text or a number that the database cannot take fails in the driver's own hands, under Python's names.
        self._errors = (SQLAlchemyError, UnicodeEncodeError, OverflowError, driver_error(engine))
        self._closed = False
        kept = [table for table in tables.metadata.sorted_tables if table is not tables.schema]
        self._upserts: dict[str, Insert] = {table.name: upsert(engine, table) for table in kept}
        self._news: dict[str, Insert] = {table.name: insert_new(engine, table) for table in kept}

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """One snapshot."""
        with self._read_turn, self._explained(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction that holds the write lock from its start; any error leaves nothing behind."""
        with self._turn, self._explained(), self._writing.begin() as connection:
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        if self._closed:
            raise StoreError(f"the store {self.where} was closed; open it again")
        try:
            yield
        except self._errors as error:
            raise explained(error, self.where) from error

    def _put(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            connection.execute(self._upserts[table.name], rows)

    def _add(self, connection: Connection, table: Table, row: dict[str, Any]) -> None:
        """Raises StoreError where the id is taken: a second use of an id is a second try at the same thing."""
        if connection.execute(self._news[table.name], row).rowcount == 0:
            raise StoreError(f"{table.name} of {self.where} has {row['id']} already; nothing was changed")

    def _record(self, connection: Connection, *entries: AuditEntry) -> None:
        """Appends in the caller's transaction; the database gives the seq."""
        for entry in entries:
            resource = None if entry.resource is None else str(entry.resource)
            row = {"at": micros(entry.at), "resource": resource, "value": _ENTRIES.encode(entry)}
            connection.execute(tables.audit.insert(), row)

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()


def lease_in(connection: Connection) -> Lease | None:
    """The lease's row in this transaction; None: none was ever taken."""
    # FOR UPDATE is for databases that write at once; SQLite leaves it out, its writers take turns anyway.
    row = connection.execute(select(tables.lease).with_for_update()).first()
    return None if row is None else Lease(epoch=row.epoch, holder=row.holder, expires_at=moment(row.expires_at))
