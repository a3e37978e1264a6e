"""Whether this process leads: a lease with an epoch and a random holder, renewed every cycle."""

from datetime import timedelta
from uuid import uuid4

from reaper import log
from reaper.ports import Clock, Lease, Store

_log = log.get(__name__)


class Leader:
    """``ttl``: how long a silent leader keeps others out; at least three cycles, so that one slow cycle loses nothing."""

    def __init__(self, store: Store, clock: Clock, ttl: timedelta) -> None:
        self._store, self._clock, self._ttl = store, clock, ttl
        self._holder = uuid4().hex
        self._lease: Lease | None = None

    def renew(self) -> Lease | None:
        """The lease, for ``ttl`` from now; None while another process holds it. Raises StoreError."""
        lease = self._store.acquire_lease(self._holder, self._clock.now(), self._ttl)
        if (lease is None) != (self._lease is None):
            _log.info("leading" if lease is not None else "another reaper leads", epoch=lease.epoch if lease is not None else None)
        self._lease = lease
        return lease

    def release(self) -> None:
        if self._lease is not None:
            self._store.release_lease(self._lease)
            self._lease = None
