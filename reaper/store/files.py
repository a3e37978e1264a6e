"""
The SQLite file: made whole or not at all, looked at before it is used, never replaced.

A store that is lost quietly is the worst outcome here: with it go the snoozes, the waits, and what we owe a start.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from reaper.errors import StoreError
from reaper.store import migrate, tables
from reaper.store.dialect import Sqlite, damaged, explained

_BESIDE = ("-wal", "-shm", "-journal")


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(f"the store {path} cannot be looked for: {error.strerror}; run as the user that owns it") from error


def create(path: Path, busy_timeout_s: float) -> None:
    """
    Makes an empty store at ``path`` in one step; one that another process made meanwhile is left alone. The folder is
    created 0700, the file 0600 (SQLite gives its side files the same rights).
    """
    leftover = [path.with_name(path.name + end) for end in _BESIDE if path.with_name(path.name + end).exists()]
    if leftover and not path.exists():  # asked again: whoever has made it meanwhile has side files too
        raise StoreError(
            f"the store {path} is missing, but its {leftover[0].name} is there: it was moved or deleted while in use."
            f" Put it back, or move {leftover[0]} away as well to begin anew"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}; name a place this user may write to") from error
    made = Path(name)
    try:
        _fill(made, path, busy_timeout_s)
        # A link, since a rename would replace what another process made in the meantime.
        os.link(made, path)
        _sync_folder(path.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}; it belongs on a local disk") from error
    finally:
        for end in ("", *_BESIDE):
            made.with_name(made.name + end).unlink(missing_ok=True)


def inspect(path: Path, busy_timeout_s: float, *, thoroughly: bool) -> bool:
    """
    Refuses what is not a whole store of ours. Opens read-only, so a refused file keeps every byte. False: it has to be brought up.

    ``thoroughly``: reads all pages (about a second per GiB), which finds damage before it is built upon.
    """
    if not path.is_file():
        raise StoreError(f"the store {path} is not a file; name the file that `reaper run` uses")
    if path.stat().st_size == 0:
        raise StoreError(damaged(str(path), "the file is empty"))
    try:
        with closing(_read_only(path, busy_timeout_s)) as connection:
            if thoroughly and (found := connection.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
                raise StoreError(damaged(str(path), str(found[0]) if found else "no answer"))
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables.schema.name not in names:
                raise StoreError(f"{path} is a SQLite file, but not an Idle Reaper store; it was left as it is. Name another file")
            (version,) = connection.execute(f"SELECT max(version) FROM {tables.schema.name}").fetchone()
            revision = None
            if "alembic_version" in names:
                (revision,) = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
    except (sqlite3.Error, OSError) as error:
        raise explained(error, str(path)) from error
    found = migrate.Found(True, version, revision)
    migrate.refuse(found, str(path))
    return found.current


def bring_up(engine: Engine, dialect: Sqlite) -> None:
    """Raises StoreError; nothing was changed then."""
    try:
        with dialect.engines(engine)[1].begin() as connection:
            migrate.bring_up(connection, dialect)
    except (SQLAlchemyError, sqlite3.Error) as error:
        engine.dispose()
        raise dialect.explained(error) from error
    except BaseException:
        engine.dispose()
        raise


def _read_only(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=busy_timeout_s)


def _fill(made: Path, path: Path, busy_timeout_s: float) -> None:
    engine = create_engine(URL.create("sqlite", database=str(made)), poolclass=NullPool)
    dialect = Sqlite(str(path), busy_timeout_s)
    dialect.prepare(engine)
    try:
        with closing(sqlite3.connect(made)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(f"the store {path} cannot be made: its file system allows no write-ahead log; it belongs on a local disk")
        bring_up(engine, dialect)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise explained(error, str(path)) from error
    finally:
        engine.dispose()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
