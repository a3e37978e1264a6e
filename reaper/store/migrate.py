"""
Which schema a store has, and bringing it to ours: in one transaction, once, whoever comes first.

`reaper_schema` is what every version of ours has read first, so it decides; Alembic's own table goes with it. Alembic is
loaded only where there is something to make or to bring up, since that takes most of a second.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from reaper.errors import StoreError
from reaper.store import tables
from reaper.store.dialect import Dialect, damaged

SCRIPTS = Path(__file__).parent / "migrations"
VERSIONS = SCRIPTS / "versions"

_alembic_table = "alembic_version"
_loading = threading.Lock()  # Alembic keeps the migration that runs in a module


@dataclass(frozen=True, slots=True)
class Found:
    """
    ``version``: the schema that the store says it has; None: it says nothing. ``revision``: Alembic's word for it; None: made
    before there were revisions. ``ours``: there is a store at all; ``empty``: there is nothing whatever.
    """

    ours: bool
    version: int | None = None
    revision: str | None = None
    empty: bool = False

    @property
    def current(self) -> bool:
        return self.ours and self.version == tables.SCHEMA and self.revision == _revision(tables.SCHEMA)


def look(connection: Connection) -> Found:
    names = set(inspect(connection).get_table_names())
    if tables.schema.name not in names:
        return Found(ours=False, empty=not names - {_alembic_table})
    version = connection.scalar(text(f"SELECT max(version) FROM {tables.schema.name}"))
    revision = connection.scalar(text(f"SELECT max(version_num) FROM {_alembic_table}")) if _alembic_table in names else None
    return Found(True, version, revision)


def refuse(found: Found, where: str) -> None:
    """Raises StoreError for what is not a store that this version can work with or bring up."""
    if not found.ours:
        raise StoreError(f"{where} holds something, but not an Idle Reaper store; it was left as it is. Name another one")
    if not isinstance(found.version, int):
        raise StoreError(damaged(where, "it does not say which schema it has"))
    if found.version > tables.SCHEMA:
        raise StoreError(
            f"the store {where} has schema {found.version} and this version knows up to {tables.SCHEMA}: a newer reaper wrote it."
            " Install that version again, or restore the backup from before; nothing was changed"
        )
    if found.version < 1:
        raise StoreError(f"the store {where} has schema {found.version}, and nothing here brings it to {tables.SCHEMA}; nothing was changed")
    if found.revision not in (None, _revision(found.version)):
        raise StoreError(damaged(where, f"it says that it has schema {found.version} and revision {found.revision}"))


def bring_up(connection: Connection, dialect: Dialect, versions: Path = VERSIONS) -> None:
    """
    In the caller's transaction, which it holds up all writers for: an empty database becomes a store, an older one ours. Looks
    again first, since another process may have done it meanwhile. ``versions``: the folder of revisions.

    Raises StoreError for what `refuse` refuses.
    """
    dialect.take_turn_to_migrate(connection)
    found = look(connection)
    if found.current:
        return
    if not found.empty:
        refuse(found, dialect.where)
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with _loading:
        settings = Config(attributes={"connection": connection})
        settings.set_main_option("script_location", _option(SCRIPTS))
        settings.set_main_option("path_separator", "newline")
        settings.set_main_option("version_locations", _option(versions))
        if found.version is not None and found.revision is None:
            command.stamp(settings, _revision(found.version))
        command.upgrade(settings, "head")
        head = ScriptDirectory.from_config(settings).get_current_head()
    assert head is not None
    if found.version != int(head):
        connection.execute(tables.schema.delete())
        connection.execute(tables.schema.insert(), {"version": int(head)})


def _revision(version: int) -> str:
    return f"{version:04d}"


def _option(path: Path) -> str:
    return str(path).replace("%", "%%")
