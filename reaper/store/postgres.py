"""A PostgreSQL database by its URL: how it is reached, looked at before it is used, and what its errors mean."""

from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from reaper.errors import StoreError
from reaper.store import migrate
from reaper.store.dialect import Postgres

SCHEMES = ("postgresql", "postgresql+psycopg", "postgres")

_AT_ONCE = 10
"""Connections of one process at most: the door has four threads, the cycle one. A server takes a hundred unless told otherwise."""

# What a network that drops packets silently would otherwise hide for a quarter of an hour. Seconds; the last in milliseconds.
_REACH = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "idle-reaper",
}


def parsed(text: str) -> URL:
    """Raises StoreError; the text stays out of the message, for it may hold a password."""
    scheme, _, rest = text.partition("://")
    try:
        url = make_url(f"postgresql+psycopg://{rest}")
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"the {scheme} URL of the store cannot be read; write postgresql://USER@HOST/DATABASE") from error
    if not url.database:
        raise StoreError(f"the {scheme} URL of the store names no database; write postgresql://USER@HOST/DATABASE")
    return url


def shown(url: URL) -> str:
    """Who, where and which, and nothing else: options may hold a password too."""
    hosts = url.query.get("host", url.host or "")
    host = hosts if isinstance(hosts, str) else ",".join(hosts)
    port = f":{url.port}" if url.port is not None else ""
    user = f"{url.username}@" if url.username else ""
    return f"postgresql://{user}{host}{port}/{url.database}"


def open_engine(text: str, *, create: bool, wait_s: float) -> tuple[Engine, Postgres]:
    """An engine over a store that has our schema. Raises StoreError, and leaves the database as it is, where it cannot be that."""
    url = parsed(text)
    dialect = Postgres(shown(url), wait_s)
    try:
        engine = create_engine(
            url, poolclass=QueuePool, pool_size=5, max_overflow=_AT_ONCE - 5, pool_timeout=wait_s, pool_pre_ping=True,
            hide_parameters=True, connect_args={name: value for name, value in _REACH.items() if name not in url.query},
        )  # fmt: skip
    except ImportError as error:
        raise StoreError("a store in PostgreSQL needs psycopg; install it with: pip install 'idle-reaper[postgres]'") from error
    dialect.prepare(engine)
    try:
        _ready(engine, dialect, create)
    except SQLAlchemyError as error:
        engine.dispose()
        raise dialect.explained(error) from error
    except BaseException:
        engine.dispose()
        raise
    return engine, dialect


def _ready(engine: Engine, dialect: Postgres, create: bool) -> None:
    reading, writing = dialect.engines(engine)
    with reading.begin() as connection:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        found = migrate.look(connection)
    if encoding != "UTF8":
        raise StoreError(f"the database {dialect.where} keeps text as {encoding}, and names come in every script; make one with: createdb -E UTF8 -T template0 NAME")
    if found.current:
        return
    if found.empty and not create:
        raise StoreError(f"there is no store in {dialect.where}; `reaper run` makes it, or name the one it uses")
    if not found.empty:
        migrate.refuse(found, dialect.where)
    with writing.begin() as connection:
        migrate.bring_up(connection, dialect)


# --- errors -----------------------------------------------------------------------------------------------------------

_BY_CODE = {
    # https://www.postgresql.org/docs/current/errcodes-appendix.html
    "53100": "the store {where} could not be written: the server's disk is full. Nothing was changed; make room on it",
    "53200": "the store {where} could not be used: the server has no memory left. Nothing was changed",
    "53300": "the store {where} takes no more connections. Raise max_connections of the server, or put fewer processes on it; each takes 10 at most",
    "25006": "the store {where} is read-only: a standby, or a server set so. Name the primary; with several hosts in the URL add target_session_attrs=read-write",
    "55P03": "the store {where} is locked: another process has been writing to it for longer than we wait. pg_stat_activity and pg_locks show which",
    "57014": "the store {where} was too slow: a statement was ended for taking too long. Nothing was changed; look at the server's load",
    "25P03": "the store {where} ended our transaction, which had stood still for too long (was this process suspended?). Nothing was changed",
    "40P01": "the store {where} ended our transaction: it and another waited for each other. Nothing was changed; it is tried again",
    "42501": "the store {where} does not allow us this ({said}). Its user needs CREATE on the schema and its own tables: ALTER DATABASE ... OWNER TO ...",
    "42P01": "the store {where} lacks one of its tables ({said}). Restore a backup, or name another database",
    "57P01": "the connection to the store {where} was ended by the server ({said}). It is made anew with the next try",
    "57P02": "the connection to the store {where} was ended: the server crashed. It is made anew with the next try",
    "57P03": "the store {where} cannot be reached yet: {said}. It is tried again",
    "28P01": "the store {where} does not know this user or password. Set it in the URL, in PGPASSWORD or in a ~/.pgpass file",
    "28000": "the store {where} does not let this user in ({said}). Look at the server's pg_hba.conf",
    "3D000": "the database of {where} does not exist. Make it: createdb -E UTF8 -T template0 NAME",
}

# A connection that does not come about has no code (libpq keeps only the text). What is not recognised, another language say, is
# shown as it came; nothing but the advice depends on it.
_BY_TEXT = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("role ", "28000"),
    ("too many clients", "53300"),
    ("remaining connection slots", "53300"),
    ("too many connections", "53300"),
    ("database system is", "57P03"),
    ("the database system is not accepting", "57P03"),
)


def explained(error: Exception, where: str) -> StoreError:
    """Which store, what happened, what to do."""
    if isinstance(error, PoolTimeout):
        return StoreError(f"the store {where} is too slow: all {_AT_ONCE} connections of this process were busy for too long. Look at the server's load")
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    code: Any = getattr(original, "sqlstate", None)
    said = " ".join((str(original) or str(error)).split())
    if code is None and _not_connected(original):
        code = next((code for part, code in _BY_TEXT if part in said), None)
        if code is None and said.endswith("does not exist") and 'database "' in said:
            code = "3D000"
        if code is None:
            return StoreError(
                f"the store {where} cannot be reached ({said}). Is the server running, and is this its address? Whatever was under way"
                " is safe to try again"
            )
    if code in _BY_CODE:
        return StoreError(_BY_CODE[code].format(where=where, said=said))
    if code is not None and code.startswith("XX"):
        return StoreError(f"the store {where} is damaged ({said}). Stop every reaper that uses it and restore a backup")
    if "NUL (0x00)" in said:
        said = "a text holds a NUL character, which PostgreSQL cannot keep"
    return StoreError(f"the store {where} refused: {said}. Nothing was changed")


def _not_connected(error: BaseException) -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
