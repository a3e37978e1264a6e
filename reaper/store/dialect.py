"""
What differs between databases: how a connection is set up, how a transaction begins, upserts, triggers, error texts.

Everything else in this folder is SQL that SQLite and PostgreSQL both understand.
"""

import sqlite3
from typing import Any

from sqlalchemy import DDL, Connection, Engine, Insert, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from reaper.errors import StoreError
from reaper.store.tables import audit

WRITES = "reaper_writes"
"""Execution option of the engine that writers begin on."""

_APPEND_ONLY = {
    "audit_no_update": "BEFORE UPDATE ON audit",
    "audit_no_delete": "BEFORE DELETE ON audit",
    # INSERT OR REPLACE deletes without firing the trigger above.
    "audit_no_replace": "BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq)",
}
for _name, _when in _APPEND_ONLY.items():
    _ddl = DDL(f"CREATE TRIGGER {_name} {_when} BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END")  # type: ignore[no-untyped-call]
    event.listen(audit, "after_create", _ddl.execute_if(dialect="sqlite"))


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
    One statement compiled once and run on the driver's own cursor: a tenth of what execute() costs, for the door where
    every report passes. ``names``: the parameters that each call gives.
    """

    def __init__(self, engine: Engine, statement: Insert, names: tuple[str, ...]) -> None:
        compiled = statement.compile(engine, column_keys=list(names))
        self._sql = str(compiled)
        self._order = compiled.positiontup  # None: the driver takes parameters by name
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}  # a LIMIT, say

    def run(self, connection: Connection, values: dict[str, Any]) -> int:
        """The number of rows written. Raises the driver's errors as they are."""
        cursor = connection.connection.cursor()
        values = self._fixed | values
        try:
            cursor.execute(self._sql, values if self._order is None else tuple(values[name] for name in self._order))
            return cursor.rowcount
        finally:
            cursor.close()


def insert_new(engine: Engine, table: Table) -> Insert:
    """Insert that leaves an existing row alone; ``rowcount`` 0 then."""
    return _insert(engine, table).on_conflict_do_nothing()


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
