"""
What differs between databases: how a connection is set up, how a transaction begins and whom it holds up, upserts, error texts.

Everything else in this folder is SQL that SQLite and PostgreSQL both understand.
"""

import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import DDL, Connection, Delete, Engine, Insert, Select, Table, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from reaper.errors import StoreError
from reaper.store.tables import audit

WRITES = "reaper_writes"
"""Execution option of the engine that writers begin on."""

WAIT_S = 10.0
"""How long a writer waits for another. Transactions take milliseconds, so this long is a fault, not a queue."""

_STATEMENT_S = 60.0
"""Seconds for one statement: a listing of a whole fleet's history takes a few."""

_IDLE_S = 5.0
"""How long a transaction may stand still between two statements: a process that is stopped or cut off then lets the others go on."""

_MIGRATION_S = 600.0

_EVERYBODY = 0x1D1E_4EA9
"""The advisory lock of all writers but the report door. Any number that others do not use."""

_MACHINES = 0x1D1E
"""The first half of the advisory lock of one machine's reports."""

_APPEND_ONLY = {
    "audit_no_update": "BEFORE UPDATE ON audit",
    "audit_no_delete": "BEFORE DELETE ON audit",
    # INSERT OR REPLACE deletes without firing the trigger above.
    "audit_no_replace": "BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq)",
}
for _name, _when in _APPEND_ONLY.items():
    _ddl = DDL(f"CREATE TRIGGER {_name} {_when} BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END")  # type: ignore[no-untyped-call]
    event.listen(audit, "after_create", _ddl.execute_if(dialect="sqlite"))


class Dialect(ABC):
    """What one kind of database does its own way. ``where``: the file or URL, for messages, without secrets."""

    threads_take_turns: bool
    """Whether writers of one process had better queue before they ask the database."""

    def __init__(self, where: str) -> None:
        self.where = where

    @abstractmethod
    def prepare(self, engine: Engine) -> None:
        """Sets up each new connection."""

    @abstractmethod
    def engines(self, engine: Engine) -> tuple[Engine, Engine]:
        """The engine for transactions that read one snapshot, and the one for those that write."""

    @abstractmethod
    def take_turn(self, connection: Connection, machines: Iterable[str]) -> None:
        """
        First in a transaction that writes: holds up the others that write until it ends. ``machines``: only reports of these
        are written, and only who writes reports of the same ones is held up; none named: every other writer of anything else.
        """

    @abstractmethod
    def take_turn_to_migrate(self, connection: Connection) -> None:
        """The same for a change of the tables, which may wait longer."""

    @abstractmethod
    def identity(self, connection: Connection) -> str | None:
        """What differs once the database was restored or another server took over; None: cannot be told."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime | None:
        """The database's own clock; None: it has none of its own."""

    @abstractmethod
    def explained(self, error: Exception) -> StoreError:
        """The driver's error as ours: which store, what happened, what to do."""


class Sqlite(Dialect):
    """One file of this machine. A writer asks for the only write lock at once, so no reader becomes a writer halfway."""

    threads_take_turns = True  # SQLite's own waiting sleeps, up to 100 ms at a time, and is not fair

    def __init__(self, where: str, wait_s: float = WAIT_S) -> None:
        super().__init__(where)
        self._wait_s = wait_s

    def prepare(self, engine: Engine) -> None:
        prepare(engine, self._wait_s)

    def engines(self, engine: Engine) -> tuple[Engine, Engine]:
        return engine, engine.execution_options(**{WRITES: True})

    def take_turn(self, connection: Connection, machines: Iterable[str]) -> None:
        """BEGIN IMMEDIATE has taken it."""

    def take_turn_to_migrate(self, connection: Connection) -> None:
        """The same."""

    def identity(self, connection: Connection) -> str | None:
        return None

    def now(self, connection: Connection) -> datetime | None:
        return None

    def explained(self, error: Exception) -> StoreError:
        return explained(error, self.where)


class Postgres(Dialect):
    """
    A server that many processes write to at once. What SQLite's one write lock gives the rest of this folder, advisory locks
    give here: one that every writer takes, and one for each machine, so that reports of different machines do not wait for
    each other. They end with the transaction, also that of a process which died. Statements after the lock see all that was
    written before it (READ COMMITTED), as a writer does in SQLite.
    """

    threads_take_turns = False

    def __init__(self, where: str, wait_s: float = WAIT_S) -> None:
        super().__init__(where)
        self._wait_s = wait_s

    def prepare(self, engine: Engine) -> None:
        settings = {
            "lock_timeout": self._wait_s,
            "statement_timeout": _STATEMENT_S,
            "idle_in_transaction_session_timeout": _IDLE_S,
        }
        sql = "; ".join(f"SET {name} = {max(int(seconds * 1000), 1)}" for name, seconds in settings.items())
        # Where a server answers before a commit is on the disk, ours are not: the agent forgets a report with our 202, and an intent
        # stands for a call.
        sql += "; SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _record: Any) -> None:
            connection.autocommit = True
            connection.execute(sql)
            connection.autocommit = False

    def engines(self, engine: Engine) -> tuple[Engine, Engine]:
        return (
            engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
            engine.execution_options(isolation_level="READ COMMITTED"),
        )

    def take_turn(self, connection: Connection, machines: Iterable[str]) -> None:
        keys = sorted({_signed(zlib.crc32(machine.encode("utf-8", "surrogatepass"))) for machine in machines})
        cursor = connection.connection.cursor()
        try:
            if not keys:
                cursor.execute(f"SELECT pg_advisory_xact_lock({_EVERYBODY})")
            for key in keys:  # in order, so that two never wait for each other
                cursor.execute(f"SELECT pg_advisory_xact_lock({_MACHINES}, {key})")
        finally:
            cursor.close()

    def take_turn_to_migrate(self, connection: Connection) -> None:
        for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(text(f"SET LOCAL {name} = {int(_MIGRATION_S * 1000)}"))
        self.take_turn(connection, ())

    def identity(self, connection: Connection) -> str | None:
        """
        The cluster, its timeline (which a promoted standby and a point-in-time recovery begin anew), the database and the audit's
        table (which a restored dump makes anew). What a hosted server does not tell is left out.
        """
        told = []
        for question in (
            "SELECT system_identifier FROM pg_control_system()",
            "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)",
            "SELECT oid FROM pg_database WHERE datname = current_database()",
            "SELECT 'audit'::regclass::oid",
        ):
            try:
                with connection.begin_nested():
                    told.append(str(connection.scalar(text(question))))
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                told.append("?")
        return "/".join(told)

    def now(self, connection: Connection) -> datetime | None:
        moment: datetime | None = connection.scalar(text("SELECT clock_timestamp()"))
        return moment

    def explained(self, error: Exception) -> StoreError:
        from reaper.store.postgres import explained as said  # loads the driver

        return said(error, self.where)


def _signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number


def prepare(engine: Engine, busy_timeout_s: float) -> None:
    """Sets up each new connection of a SQLite engine and how its transactions begin."""

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # the driver would otherwise begin late, and a reader become a writer halfway
        for pragma in (
            f"busy_timeout = {int(busy_timeout_s * 1000)}",
            "foreign_keys = ON",
            # FULL for all: intents, snoozes and audit must survive a power cut, and so must a report, since the agent
            # forgets it with our 202. A setting per table does not exist.
            "synchronous = FULL",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # A writer asks for the lock first: one that reads and then writes could otherwise fail halfway, whatever the timeout.
        immediate = connection.get_execution_options().get(WRITES, False)
        connection.connection.cursor().execute("BEGIN IMMEDIATE" if immediate else "BEGIN")


class Prepared:
    """
    One statement compiled once and run on the driver's own cursor: a tenth of what execute() costs, for what every report
    and every cycle does. Columns are texts and whole numbers, which drivers take and give as they are. ``names``: the columns
    that each call of an insert gives.
    """

    def __init__(self, engine: Engine, statement: Insert | Select[Any] | Delete, names: Iterable[str] | None = None) -> None:
        compiled = statement.compile(engine, column_keys=None if names is None else list(names))
        self._sql = str(compiled)
        self._order = compiled.positiontup  # None: the driver takes parameters by name
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}  # a LIMIT, say

    def run(self, connection: Connection, values: dict[str, Any]) -> int:
        """The number of rows written. Raises the driver's errors as they are."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._sql, self._given(values))
            return cursor.rowcount
        finally:
            cursor.close()

    def run_many(self, connection: Connection, rows: Iterable[dict[str, Any]]) -> None:
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(self._sql, [self._given(row) for row in rows])
        finally:
            cursor.close()

    def first(self, connection: Connection, values: dict[str, Any]) -> tuple[Any, ...] | None:
        """The first row of a query; None: it found nothing."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._sql, self._given(values))
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row
        finally:
            cursor.close()

    def _given(self, values: dict[str, Any]) -> Any:
        if self._fixed:
            values = self._fixed | values
        return values if self._order is None else tuple(values[name] for name in self._order)


def insert_new(engine: Engine, table: Table) -> Insert:
    """Insert that leaves an existing row alone; ``rowcount`` 0 then."""
    return _insert(engine, table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)


def upsert(engine: Engine, table: Table) -> Insert:
    """Insert, or replace every other column of the row with the same key."""
    statement = _insert(engine, table)
    rest = {c.name: statement.excluded[c.name] for c in table.columns if not c.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=rest)


def _insert(engine: Engine, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def driver_error(engine: Engine) -> type[Exception]:
    """What the driver raises where SQLAlchemy does not stand in between."""
    driver = engine.dialect.loaded_dbapi
    return driver.Error


def explained(error: Exception, where: str) -> StoreError:
    """The driver's error as ours: which store, what happened, what to do."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlite_errorcode", None)
    said = str(original) or str(error)
    primary = None if code is None else code & 0xFF
    match primary:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            text = (
                f"the store {where} is locked: another process has been writing to it for longer than we wait. Look for a"
                f" second reaper, a command that hangs or an open sqlite3 shell (`fuser {where}`), and for a network file system"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            text = damaged(where, said)
        case sqlite3.SQLITE_FULL:
            text = f"the store {where} could not be written: the disk is full. Nothing was changed; make room on it"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            text = (
                f"the store {where} cannot be opened for writing ({said}). Check that this user owns the file and its folder"
                " and that the file system is not mounted read-only"
            )
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_PROTOCOL | sqlite3.SQLITE_NOLFS:
            text = (
                f"the store {where} could not be read or written ({said}). Check the disk; a store belongs on a local one,"
                " not on a network or shared folder"
            )
        case _:
            text = f"the store {where} refused: {said}. Nothing was changed"
    return StoreError(text)


def damaged(where: str, said: str) -> str:
    return (
        f"the store {where} is damaged ({' '.join(said.split())}) and was left as it is. Stop every reaper that uses it, then put a backup in"
        f" its place and remove {where}-wal and {where}-shm, or move all three away to begin anew: everything is then watched"
        " and warned from the start, and nothing that was stopped is started"
    )
