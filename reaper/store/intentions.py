"""What is meant to happen and what people said to it: marks, snoozes, plans, approvals."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, select

from reaper.errors import LeaseLost, StoreError
from reaper.model.audit import AuditEntry
from reaper.model.decision import Action
from reaper.model.mark import Mark
from reaper.model.plan import Approval, Plan
from reaper.model.resource import ResourceId
from reaper.model.snooze import Snooze
from reaper.ports import Lease
from reaper.store import tables
from reaper.store.codec import Codec, micros
from reaper.store.transactions import Transactions

_MARKS = Codec("marks", Mark)
_SNOOZES = Codec("snoozes", Snooze)
_PLANS = Codec("plans", Plan)
_APPROVALS = Codec("approvals", Approval)

_PLANS_KEPT = 200


class Intentions(Transactions):
    def marks(self) -> dict[tuple[ResourceId, Action], Mark]:
        with self._read() as connection:
            rows = connection.execute(select(tables.marks)).all()
        marks = [_MARKS.decode(value, resource, action) for resource, action, value in rows]
        return {(mark.resource, mark.action): mark for mark in marks}

    def save_marks(self, changed: Sequence[Mark], cleared: Sequence[Mark], entries: Sequence[AuditEntry], lease: Lease | None = None) -> None:
        """As in the port. Clears first: a mark that was cleared and nominated anew in one cycle is in both, and stands."""
        table = tables.marks
        rows = [
            {"resource": str(mark.resource), "action": mark.action.value, "value": _MARKS.encode(mark)}
            for mark in changed
        ]
        with self._write() as connection:
            held = self._lease_in(connection, to_write=True) if lease is not None else None
            if lease is not None and (held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder)):
                raise LeaseLost("another reaper leads: the marks are its own business now")
            for mark in cleared:
                connection.execute(
                    delete(table).where(table.c.resource == str(mark.resource), table.c.action == mark.action.value)
                )
            self._put(connection, table, rows)
            self._record(connection, *entries)

    def add_snooze(self, snooze: Snooze, entry: AuditEntry) -> None:
        """Raises StoreError when the id is taken."""
        row = {"id": snooze.id, "until": micros(snooze.until), "value": _SNOOZES.encode(snooze)}
        with self._write() as connection:
            self._add(connection, tables.snoozes, row)
            self._record(connection, entry)

    def put_snooze(self, snooze: Snooze, entry: AuditEntry) -> None:
        """As in the port."""
        row = {"id": snooze.id, "until": micros(snooze.until), "value": _SNOOZES.encode(snooze)}
        with self._write() as connection:
            self._put(connection, tables.snoozes, [row])
            self._record(connection, entry)

    def end_snooze(self, id: str, entry: AuditEntry) -> bool:
        """As in the port."""
        with self._write() as connection:
            if connection.execute(delete(tables.snoozes).where(tables.snoozes.c.id == id)).rowcount == 0:
                return False
            self._record(connection, entry)
            return True

    def snooze(self, id: str) -> Snooze | None:
        """As in the port."""
        with self._read() as connection:
            value = connection.execute(select(tables.snoozes.c.value).where(tables.snoozes.c.id == id)).scalar()
        return _SNOOZES.decode(value, id) if value is not None else None

    def snoozes(self, active_at: datetime) -> tuple[Snooze, ...]:
        """Those whose end is after ``active_at``, the first to end first."""
        table = tables.snoozes
        query = (
            select(table.c.id, table.c.value).where(table.c.until > micros(active_at)).order_by(table.c.until, table.c.id)
        )
        with self._read() as connection:
            rows = connection.execute(query).all()
        return tuple(_SNOOZES.decode(value, id) for id, value in rows)

    def save_plan(self, plan: Plan) -> None:
        """As in the port. The same id again replaces it and makes it the newest."""
        table = tables.plans
        value = _PLANS.encode(plan)
        with self._write() as connection:
            connection.execute(delete(table).where(table.c.id == plan.id))
            connection.execute(table.insert(), {"id": plan.id, "value": value})
            oldest = connection.scalar(select(table.c.seq).order_by(table.c.seq.desc()).offset(_PLANS_KEPT - 1).limit(1))
            if oldest is not None:
                connection.execute(delete(table).where(table.c.seq < oldest))

    def plan(self, id: str | None = None) -> Plan | None:
        """By id; the one saved last when no id is given."""
        table = tables.plans
        query = select(table.c.id, table.c.value)
        query = query.order_by(table.c.seq.desc()).limit(1) if id is None else query.where(table.c.id == id)
        with self._read() as connection:
            row = connection.execute(query).first()
        return None if row is None else _PLANS.decode(row.value, row.id)

    def add_approval(self, approval: Approval, entry: AuditEntry) -> None:
        """Raises StoreError when the id is taken."""
        row = _approval_row(approval)
        with self._write() as connection:
            self._add(connection, tables.approvals, row)
            self._record(connection, entry)

    def approvals(self) -> tuple[Approval, ...]:
        table = tables.approvals
        query = select(table.c.id, table.c.value).where(table.c.done_at.is_(None)).order_by(table.c.at, table.c.id)
        with self._read() as connection:
            rows = connection.execute(query).all()
        return tuple(_APPROVALS.decode(value, id) for id, value in rows)

    def finish_approval(self, id: str, at: datetime) -> None:
        """Finishing twice keeps the first moment. Raises StoreError when there is no such approval."""
        table = tables.approvals
        with self._write() as connection:
            value = connection.scalar(select(table.c.value).where(table.c.id == id))
            if value is None:
                raise StoreError(f"there is no approval {id} in {self.where}")
            approval = _APPROVALS.decode(value, id)
            if approval.done_at is None:
                self._put(connection, table, [_approval_row(replace(approval, done_at=at))])


def _approval_row(approval: Approval) -> dict[str, object]:
    return {
        "id": approval.id,
        "at": micros(approval.at),
        "done_at": None if approval.done_at is None else micros(approval.done_at),
        "value": _APPROVALS.encode(approval),
    }
