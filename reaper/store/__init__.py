"""
The state, in one SQLite file or a PostgreSQL database: open_store gives a reaper.ports.Store.

Everything that must outlive the process is here. What is kept in memory between calls only tells whether the database is still
the one that we wrote to.
"""

from pathlib import Path

from sqlalchemy import URL, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from reaper.errors import StoreError
from reaper.store import files, tables
from reaper.store.dialect import WAIT_S, Sqlite
from reaper.store.sql import SqlStore

__all__ = ["SqlStore", "is_shared", "open_store"]

_MEMORY = (":memory:", "sqlite://", "sqlite:///:memory:")
_SHARED = ("postgresql", "postgresql+psycopg", "postgres")


def is_shared(url: str | Path) -> bool:
    """Whether this names a server that processes on several machines can use. Nothing is opened."""
    return isinstance(url, str) and url.partition("://")[0] in _SHARED and "://" in url


def open_store(url: str | Path, *, create: bool = True, check: bool = True, busy_timeout_s: float = WAIT_S) -> SqlStore:
    """
    Opens the store at a path, ``sqlite:///PATH``, ``postgresql://USER@HOST/DATABASE`` or ``":memory:"`` (one process, gone when
    closed). An older schema is brought up to ours.

    ``create``: make an empty one where there is none. ``check``: read all of a file for damage first; a short command on a
    big store may do without. Raises StoreError, and leaves the store as it is, when it is missing, damaged, not ours, of a newer
    version or cannot be reached.
    """
    if str(url) in _MEMORY:
        return _in_memory()
    if is_shared(url):
        from reaper.store import postgres  # only where it is used

        engine, dialect = postgres.open_engine(str(url), create=create, wait_s=busy_timeout_s)
        return SqlStore(engine, dialect)
    path = _path(url)
    if not files.exists(path):
        if not create:
            raise StoreError(f"there is no store at {path}; `reaper run` makes it, or name the one it uses")
        files.create(path, busy_timeout_s)
    current = files.inspect(path, busy_timeout_s, thoroughly=check)
    sqlite = Sqlite(str(path), busy_timeout_s)
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=QueuePool, pool_size=8, max_overflow=24)
    sqlite.prepare(engine)
    if not current:
        files.bring_up(engine, sqlite)
    return SqlStore(engine, sqlite)


def _path(url: str | Path) -> Path:
    """Raises StoreError for the URL of another database; its text stays out of the message, for it may hold a password."""
    text = str(url)
    scheme, separator, rest = text.partition("://")
    if isinstance(url, str) and separator:
        if scheme not in ("sqlite", "sqlite+pysqlite") or not rest.startswith("/") or rest == "/":
            raise StoreError(
                f"a store by a {scheme} URL of this form is not known; give a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
            )
        text = rest[1:]
    return Path(text).expanduser().absolute()


def _in_memory() -> SqlStore:
    sqlite = Sqlite("in memory")
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    sqlite.prepare(engine)
    try:
        with engine.begin() as connection:
            tables.metadata.create_all(connection, checkfirst=False)
            connection.execute(tables.schema.insert(), {"version": tables.SCHEMA})
    except SQLAlchemyError as error:
        raise sqlite.explained(error) from error
    return SqlStore(engine, sqlite, one_connection=True)
