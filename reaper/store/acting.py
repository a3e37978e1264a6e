"""The lease, the intents written under it, and what they took from the budgets."""

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, or_, select, update

from reaper.errors import BudgetSpent, LeaseLost, StoreError
from reaper.model.audit import AuditEntry
from reaper.model.decision import Action
from reaper.model.plan import Attempt, Debit, Outcome
from reaper.model.resource import ResourceId
from reaper.ports import Lease
from reaper.store import tables
from reaper.store.codec import Codec, micros
from reaper.store.transactions import Transactions

_ATTEMPTS = Codec("attempts", Attempt)

_DEBITS_OF = timedelta(hours=25)
"""A budget's longest span is a day in a named zone, and the day on which clocks go back has 25 hours."""

_TOOK_NOTHING = (Outcome.REFUSED.value, Outcome.ABANDONED.value)

_NOBODY = ""


class Acting(Transactions):
    def acquire_lease(self, holder: str, now: datetime, ttl: timedelta) -> Lease | None:
        """
        As in the port. The holder's own is renewed under its epoch, run out or not; another's that ran out, or a
        released one, is taken over under the next epoch.
        """
        if holder == _NOBODY:
            raise StoreError("a lease needs a holder: pass a random text per process")
        expires_at = now + ttl
        ends = micros(expires_at)
        with self._write() as connection:
            held = self._lease_in(connection, to_write=True)
            self._known_epoch = max(self._known_epoch, 0 if held is None else held.epoch)
            if held is not None and held.holder == holder:
                epoch = held.epoch
            elif held is None or held.holder == _NOBODY or held.expires_at <= now:
                epoch = 1 if held is None else held.epoch + 1
            else:
                return None
            row = {"id": 1, "epoch": epoch, "holder": holder, "expires_at": ends}
            self._put(connection, tables.lease, [row])
        self._known_epoch = max(self._known_epoch, epoch)
        return Lease(epoch=epoch, holder=holder, expires_at=expires_at)

    def release_lease(self, lease: Lease) -> None:
        """Nothing happens when it is another's by now."""
        table = tables.lease
        with self._write() as connection:
            connection.execute(
                update(table)
                .where(table.c.epoch == lease.epoch, table.c.holder == lease.holder)
                .values(holder=_NOBODY, expires_at=0)
            )

    def held_lease(self) -> Lease | None:
        with self._read() as connection:
            held = self._lease_in(connection)
        return None if held is None or held.holder == _NOBODY else held

    def begin_attempt(
        self, attempt: Attempt, lease: Lease, now: datetime, entry: AuditEntry, admit: Callable[[tuple[Debit, ...]], str | None]
    ) -> None:
        """
        As in the port. ``admit`` runs inside the transaction, holds up every other writer and must not call the store.

        Raises StoreError when the id is taken or the attempt is not open.
        """
        if attempt.outcome is not None:
            raise StoreError(f"attempt {attempt.id} has ended already and cannot begin")
        row = _row(attempt)
        with self._write() as connection:
            held = self._lease_in(connection, to_write=True)
            if held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder):
                raise LeaseLost(f"{attempt.resource}: another reaper leads, {attempt.action} was not begun")
            if held.expires_at <= now:
                raise LeaseLost(f"{attempt.resource}: our lease ran out at {held.expires_at}, {attempt.action} was not begun")
            strange = self._strange(connection)
            if strange is not None:
                raise LeaseLost(f"{attempt.resource}: {strange}; people have to be warned anew, {attempt.action} was not begun")
            refusal = admit(_debits(connection, attempt.action, now - _DEBITS_OF))
            if refusal is not None:
                raise BudgetSpent(refusal)
            self._add(connection, tables.attempts, row)
            self._record(connection, entry)

    def end_attempt(self, attempt: Attempt, entry: AuditEntry) -> None:
        """
        Closes an open one. One that was closed as abandoned, which is a guess, may be closed again by who made the call;
        any other outcome stands. Raises StoreError when it stands, is not there, or no outcome is given.
        """
        if attempt.outcome is None or attempt.outcome_at is None:
            raise StoreError(f"attempt {attempt.id} cannot end without an outcome and its moment")
        row = _row(attempt)
        with self._write() as connection:
            kept = _attempt(connection, attempt.id)
            if kept is None:
                raise StoreError(f"there is no attempt {attempt.id} in {self.where}")
            if kept.outcome not in (None, Outcome.ABANDONED):
                raise StoreError(f"attempt {attempt.id} ended as {kept.outcome} at {kept.outcome_at}; that stands")
            self._put(connection, tables.attempts, [row])
            self._record(connection, entry)

    def attempts(self, open_only: bool = False, resource: ResourceId | None = None, limit: int = 1000) -> tuple[Attempt, ...]:
        table = tables.attempts
        query = select(table.c.id, table.c.value).order_by(table.c.intent_at.desc(), table.c.id.desc()).limit(limit)
        if open_only:
            query = query.where(table.c.outcome.is_(None))
        if resource is not None:
            query = query.where(table.c.resource == str(resource))
        with self._read() as connection:
            rows = connection.execute(query).all()
        return tuple(_ATTEMPTS.decode(value, id) for id, value in rows)

    def attempt(self, id: str) -> Attempt | None:
        with self._read() as connection:
            return _attempt(connection, id)

    def debits(self, action: Action, since: datetime) -> tuple[Debit, ...]:
        """Oldest first. Every attempt from ``since`` on, open ones too, except those that took nothing (refused, abandoned)."""
        with self._read() as connection:
            return _debits(connection, action, since)


def _attempt(connection: Connection, id: str) -> Attempt | None:
    value = connection.scalar(select(tables.attempts.c.value).where(tables.attempts.c.id == id))
    return None if value is None else _ATTEMPTS.decode(value, id)


def _debits(connection: Connection, action: Action, since: datetime) -> tuple[Debit, ...]:
    table = tables.attempts
    rows = connection.execute(
        select(table.c.id, table.c.value)
        .where(table.c.action == action.value, table.c.intent_at >= micros(since))
        .where(or_(table.c.outcome.is_(None), table.c.outcome.not_in(_TOOK_NOTHING)))
        .order_by(table.c.intent_at, table.c.id)
    ).all()
    tried = [_ATTEMPTS.decode(value, id) for id, value in rows]
    return tuple(Debit(attempt.intent_at, attempt.resource, action, attempt.usd_per_hour) for attempt in tried)


def _row(attempt: Attempt) -> dict[str, object]:
    return {
        "id": attempt.id,
        "resource": str(attempt.resource),
        "action": attempt.action.value,
        "intent_at": micros(attempt.intent_at),
        "outcome": None if attempt.outcome is None else attempt.outcome.value,
        "value": _ATTEMPTS.encode(attempt),
    }
