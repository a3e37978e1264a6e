"""Short transactions on one engine, from many threads and processes at once, and whether it is still the same database."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BindParameter, Connection, Engine, Insert, Table, bindparam, delete, func, select
from sqlalchemy.exc import SQLAlchemyError

from reaper.errors import StoreError
from reaper.model.audit import AuditEntry
from reaper.ports import Lease
from reaper.store import tables
from reaper.store.codec import Codec, micros, moment
from reaper.store.dialect import Dialect, Prepared, driver_error, insert_new, upsert

_ENTRIES = Codec("audit", AuditEntry)


_OF: BindParameter[str] = bindparam("place")
_AFTER: BindParameter[str] = bindparam("after")
_BEFORE: BindParameter[str] = bindparam("before")
forget_listing = delete(tables.listings).where(
    (tables.listings.c.place == _OF) | ((tables.listings.c.place > _AFTER) & (tables.listings.c.place < _BEFORE))
)
"""A place's rows: its first, and those whose key is between."""

_SEQ = "reaper_audit_seq"
"""Where a connection notes the newest audit entry of its transaction."""

_DATABASE = "database"
"""The fact that tells on which database the last cycle ran."""


class Transactions:
    """
    What every part of the store stands on. ``where``: the file or URL, for messages, without secrets.

    ``one_connection``: all threads share one connection (":memory:"), so reads take turns as well.
    """

    def __init__(self, engine: Engine, dialect: Dialect, *, one_connection: bool = False) -> None:
        self._engine, self._dialect = engine, dialect
        self._reading, self._writing = dialect.engines(engine)
        self.where = dialect.where
        self._turn = threading.RLock() if dialect.threads_take_turns else nullcontext()
        self._read_turn = self._turn if one_connection else nullcontext()
        # Text or a number that the database cannot take fails in the driver's own hands, under Python's names.
        self._errors = (SQLAlchemyError, UnicodeEncodeError, OverflowError, driver_error(engine))
        self._closed = False
        kept = [table for table in tables.metadata.sorted_tables if table is not tables.schema]
        self._upserts = {table.name: Prepared(engine, upsert(engine, table), table.columns.keys()) for table in kept}
        self._news: dict[str, Insert] = {table.name: insert_new(engine, table) for table in kept}
        # What every cycle asks.
        lease = select(tables.lease.c.epoch, tables.lease.c.holder, tables.lease.c.expires_at)
        self._lease, self._lease_to_write = Prepared(engine, lease), Prepared(engine, lease.with_for_update())
        self._fact_of = Prepared(engine, select(tables.facts.c.value).where(tables.facts.c.key == bindparam("key")))
        self._forget = Prepared(engine, forget_listing)
        self._newest_entry = Prepared(engine, select(func.max(tables.audit.c.seq)))
        # What this process knows to be in the database: were it gone, that is another database than the one we wrote to.
        self._known_seq = 0
        self._known_epoch = 0

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """One snapshot."""
        with self._read_turn, self._explained(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def _write(self, *machines: str) -> Iterator[Connection]:
        """
        One transaction that holds up the other writers from its start; any error leaves nothing behind. ``machines``: it writes
        reports of these and nothing else, and on a server only who does the same waits.
        """
        with self._turn, self._explained():
            with self._writing.begin() as connection:
                connection.info.pop(_SEQ, None)  # of a transaction that came to nothing
                self._dialect.take_turn(connection, machines)
                yield connection
                written = connection.info.pop(_SEQ, 0)
            self._known_seq = max(self._known_seq, written)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        if self._closed:
            raise StoreError(f"the store {self.where} was closed; open it again")
        try:
            yield
        except self._errors as error:
            raise self._dialect.explained(error) from error

    def _put(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._upserts[table.name].run_many(connection, rows)

    def _add(self, connection: Connection, table: Table, row: dict[str, Any]) -> None:
        """Raises StoreError where the id is taken: a second use of an id is a second try at the same thing."""
        if connection.execute(self._news[table.name], row).rowcount == 0:
            raise StoreError(f"{table.name} of {self.where} has {row['id']} already; nothing was changed")

    def _record(self, connection: Connection, *entries: AuditEntry) -> None:
        """Appends in the caller's transaction; the database gives the seq."""
        for entry in entries:
            resource = None if entry.resource is None else str(entry.resource)
            row = {"at": micros(entry.at), "resource": resource, "value": _ENTRIES.encode(entry)}
            given = connection.execute(tables.audit.insert(), row).inserted_primary_key
            assert given is not None
            connection.info[_SEQ] = given[0]

    # --- the same database as before ----------------------------------------------------------------------------------

    def lost_track(self) -> str | None:
        """As in the port."""
        with self._read() as connection:
            return self._strange(connection)

    def keep_track(self) -> None:
        """As in the port."""
        with self._read() as connection:
            told, identity = self._fact_in(connection, _DATABASE), self._dialect.identity(connection)
            seq, held = self._seq_in(connection), self._lease_in(connection)
        if identity is not None and told != identity:
            with self._write() as connection:
                self._put(connection, tables.facts, [{"key": _DATABASE, "value": identity}])
        self._known_seq = seq
        self._known_epoch = 0 if held is None else held.epoch

    def skew(self, now: datetime) -> timedelta | None:
        """As in the port."""
        with self._read() as connection:
            theirs = self._dialect.now(connection)
        return None if theirs is None else now - theirs

    def _strange(self, connection: Connection) -> str | None:
        told = self._fact_in(connection, _DATABASE)
        identity = self._dialect.identity(connection) if told is not None else None
        if told is not None and identity is not None and told != identity:
            return f"the database was restored or another server took over (it was {told} and is {identity})"
        held = self._lease_in(connection)
        epoch = 0 if held is None else held.epoch
        if epoch < self._known_epoch:
            return f"the database went back in time: its lease has epoch {epoch}, and {self._known_epoch} was there before"
        seq = self._seq_in(connection)
        if seq < self._known_seq:
            return f"the database went back in time: its audit ends at {seq}, and {self._known_seq} was written before"
        return None

    def _lease_in(self, connection: Connection, *, to_write: bool = False) -> Lease | None:
        """
        The lease's row in this transaction; None: none was ever taken. ``to_write``: nobody changes it until this transaction
        ends, not even a hand in psql (SQLite leaves that out: its writers take turns anyway).
        """
        row = (self._lease_to_write if to_write else self._lease).first(connection, {})
        return None if row is None else Lease(epoch=row[0], holder=row[1], expires_at=moment(row[2]))

    def _fact_in(self, connection: Connection, key: str) -> str | None:
        row = self._fact_of.first(connection, {"key": key})
        return None if row is None else row[0]

    def _seq_in(self, connection: Connection) -> int:
        """Of the newest audit entry; 0: there is none."""
        row = self._newest_entry.first(connection, {})
        return 0 if row is None or row[0] is None else row[0]

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()
