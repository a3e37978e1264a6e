"""The audit, which only grows, and facts about ourselves."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, select

from reaper.model.audit import AuditEntry
from reaper.model.resource import ResourceId
from reaper.store import tables
from reaper.store.codec import Codec, micros
from reaper.store.transactions import Transactions

_ENTRIES = Codec("audit", AuditEntry)


class Record(Transactions):
    def append_audit(self, *entries: AuditEntry) -> None:
        with self._write() as connection:
            self._record(connection, *entries)

    def audit(
        self, resource: ResourceId | None = None, since: datetime | None = None, limit: int = 200, after_seq: int = 0
    ) -> tuple[AuditEntry, ...]:
        """As in the port; from ``since`` on, and only those after ``after_seq``."""
        table = tables.audit
        query = select(table.c.seq, table.c.value).where(table.c.seq > after_seq).order_by(table.c.seq.desc()).limit(limit)
        if resource is not None:
            query = query.where(table.c.resource == str(resource))
        if since is not None:
            query = query.where(table.c.at >= micros(since))
        with self._read() as connection:
            rows = connection.execute(query).all()
        return tuple(replace(_ENTRIES.decode(value, seq), seq=seq) for seq, value in reversed(rows))

    def fact(self, key: str) -> str | None:
        with self._read() as connection:
            return self._fact_in(connection, key)

    def edit_fact(self, key: str, edit: Callable[[str | None], str | None]) -> None:
        """As in the port."""
        with self._write() as connection:
            kept = self._fact_in(connection, key)
            value = edit(kept)
            if value is not None and value != kept:
                self._put(connection, tables.facts, [{"key": key, "value": value}])

    def set_facts(self, facts: dict[str, str | None]) -> None:
        rows = [{"key": key, "value": value} for key, value in facts.items() if value is not None]
        gone = [key for key, value in facts.items() if value is None]
        with self._write() as connection:
            self._put(connection, tables.facts, rows)
            if gone:
                connection.execute(delete(tables.facts).where(tables.facts.c.key.in_(gone)))
