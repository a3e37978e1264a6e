"""
The state, in one SQLite file: open_store gives a reaper.ports.Store.

Everything that must outlive the process is here; nothing is kept in memory between calls.
"""

from pathlib import Path

from sqlalchemy import URL, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from reaper.errors import StoreError
from reaper.store import files, tables
from reaper.store.dialect import explained, prepare
from reaper.store.sql import SqlStore

__all__ = ["SqlStore", "open_store"]

BUSY_TIMEOUT_S = 10.0
"""How long a writer waits for another process. Transactions take milliseconds, so this long is a fault, not a queue."""

_MEMORY = (":memory:", "sqlite://", "sqlite:///:memory:")


def open_store(
    url: str | Path, *, create: bool = True, check: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> SqlStore:
    """
    Opens the store at a path, ``sqlite:///PATH`` or ``":memory:"`` (one process, gone when closed).

    ``create``: make an empty one where there is none. ``check``: read all of it for damage first; a short command on a
    big store may do without. Raises StoreError, and leaves the file as it is, when it is missing, damaged, not ours or of
    a newer version.
    """
    if str(url) in _MEMORY:
        return _in_memory()
    path = _path(url)
    if not files.exists(path):
        if not create:
            raise StoreError(f"there is no store at {path}; `reaper run` makes it, or name the one it uses")
        files.create(path, busy_timeout_s)
    files.inspect(path, busy_timeout_s, thoroughly=check)
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=QueuePool, pool_size=8, max_overflow=24)
    prepare(engine, busy_timeout_s)
    return SqlStore(engine, str(path))


def _path(url: str | Path) -> Path:
    """Raises StoreError for the URL of another database; its text stays out of the message, for it may hold a password."""
    text = str(url)
    scheme, separator, rest = text.partition("://")
    if isinstance(url, str) and separator:
        if scheme not in ("sqlite", "sqlite+pysqlite") or not rest.startswith("/") or rest == "/":
            raise StoreError(f"a store by a {scheme} URL of this form is not known; give a path or sqlite:///PATH")
        text = rest[1:]
    return Path(text).expanduser().absolute()


def _in_memory() -> SqlStore:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    prepare(engine, BUSY_TIMEOUT_S)
    try:
        with engine.begin() as connection:
            tables.metadata.create_all(connection, checkfirst=False)
            connection.execute(tables.schema.insert(), {"version": tables.SCHEMA})
    except SQLAlchemyError as error:
        raise explained(error, "in memory") from error
    return SqlStore(engine, "in memory", one_connection=True)
