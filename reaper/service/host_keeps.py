"""
What people on a machine asked its agent to keep, as snoozes of that machine.

Only a believed report of the machine's own gets here. Each who asks has a snooze, and a report tells of the newest wish alone:
one that the operator's cap has ended hides no other. The end is fixed when we first hear of a wish: the same wish told
again does not move it, a longer one does, and none reaches beyond the operator's cap counted from its asker's first. A
report without any, newer than all others, lets go of all. The cap itself is the policy's, which the decision knows and a
door need not: see `Snooze.capped`.
"""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent.report import Keep
from reaper.log import get
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.resource import ResourceId
from reaper.model.snooze import HOST_PREFIX, Snooze
from reaper.ports import Clock, Store

MOST = timedelta(days=400)
"""Beyond any cap an operator sets; so that no end is past what a calendar holds."""

JITTER = timedelta(minutes=2)
"""Ends that differ by less are the same: a place in time follows from when a report came in."""

MOST_ASKERS = 8
"""At once, as on the machine: what a host says of who asks is its own word."""

_READ_EVERY_S = 60.0
_MOST_REASON = 200

log = get("keeps")


class HostKeeps:
    """Thread-safe. What is known here may be a minute old, since another process's door may have heard the machine."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._known: dict[ResourceId, set[str]] = {}
        self._read_at: float | None = None
        self._last: dict[ResourceId, Keep] = {}

    def heard(self, resource: ResourceId, keep: Keep | None, ended_at: datetime, now: datetime, *, newest: bool) -> None:
        """``ended_at``: the window's end. ``newest``: none of the machine's is newer; only such a one lets go. Raises StoreError."""
        if keep is None:
            self._last.pop(resource, None)
            if newest:
                for id in self._ids(resource):
                    self._let_go(id, resource, now)
            return
        id = f"{HOST_PREFIX}{resource}/{keep.who or 'somebody'}"
        until = min(ended_at + timedelta(seconds=min(keep.for_s, MOST.total_seconds())), now + MOST)
        repeated, self._last[resource] = self._last.get(resource) == keep, keep
        standing = self._store.snooze(id)
        if standing is None:
            if until <= now:
                log.warning("keep refused", resource=str(resource), because="it ended before it was heard", until=until.isoformat())
                return
            if sum(one.resource == resource and one.from_host for one in self._store.snoozes(now)) >= MOST_ASKERS:
                log.warning("keep refused", resource=str(resource), because=f"{MOST_ASKERS} people keep it already", who=keep.who)
                return
            who = f"{keep.who or 'somebody'} on the machine"
            made = Snooze(id, resource, until, who, (keep.reason or "no reason given")[:_MOST_REASON], now)
        elif repeated:
            return  # an honest agent counts down; one that tells the same length for ever does not move the end
        elif standing.until <= now:  # that wish is over, and this is another
            made = replace(standing, until=until, reason=(keep.reason or "no reason given")[:_MOST_REASON], created_at=now)
        elif until <= standing.until + JITTER:
            return
        else:
            made = replace(standing, until=until, reason=(keep.reason or "no reason given")[:_MOST_REASON])
        evidence = {"until": made.until.astimezone(UTC).isoformat(), "snooze": id, "first asked": made.created_at.astimezone(UTC).isoformat()}
        because = f"asked on the machine: {made.reason}; at most the operator's cap from the first asking"
        self._store.put_snooze(made, AuditEntry(now, AuditKind.SNOOZED, made.who, because, resource, evidence=evidence))
        with self._lock:
            self._known.setdefault(resource, set()).add(id)

    def _ids(self, resource: ResourceId) -> tuple[str, ...]:
        with self._lock:
            if self._read_at is None or self._clock.monotonic() - self._read_at >= _READ_EVERY_S:
                self._known = {}
                for snooze in self._store.snoozes(self._clock.now() - MOST):
                    if snooze.from_host:
                        self._known.setdefault(snooze.resource, set()).add(snooze.id)
                self._read_at = self._clock.monotonic()
            return tuple(sorted(self._known.get(resource, ())))

    def _let_go(self, id: str, resource: ResourceId, now: datetime) -> None:
        standing = self._store.snooze(id)
        if standing is not None:
            because = "it ended by itself" if standing.until <= now + JITTER else "it was withdrawn on the machine"
            self._store.end_snooze(id, AuditEntry(now, AuditKind.SNOOZED, standing.who, because, resource, evidence={"snooze": id}))
        with self._lock:
            self._known.get(resource, set()).discard(id)
