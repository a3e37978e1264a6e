"""
Every machine's idle clock and newest windows, in memory: a fold of the store that can be made again at any time.

The door adds to it as reports come in, the cycle asks it. What the store keeps is the truth; here nothing is lost that
`rebuild` does not bring back.
"""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar

from reaper.decide.links import REMEMBERED, Told
from reaper.decide.windows import HORIZON, Fold, IdleClock, in_order
from reaper.model.resource import ResourceId
from reaper.model.signal import Limits, Observation, Quiet, Voice
from reaper.ports import Store

_Answer = TypeVar("_Answer")

_SWEEP_EVERY = timedelta(hours=1)

_SOME_MORE = timedelta(minutes=5)

_FOLLOWED = 20
"""Windows of one machine that are read one after the other; of more, a whole new fold is no dearer."""


class _Machine:
    """``stale``: the fold lacks something that the store has. ``changes`` counts, so that a fold made aside can tell it is old."""

    __slots__ = ("changes", "clock", "latest_at", "links", "newest", "stale", "verified")

    def __init__(self) -> None:
        self.clock = IdleClock()
        self.newest: Observation | None = None
        self.verified: Observation | None = None
        self.latest_at: datetime | None = None  # the latest end of any window
        self.links: Told | None = None  # of machines that ever told of a connection, and of those that could deny one
        self.stale = False
        self.changes = 0

    def add(self, seen: Observation) -> None:
        """One more window. What does not follow the newest in order makes the whole stale."""
        self.changes += 1
        newest = self.newest
        if newest is None or _follows(newest, seen):
            self.stale = not self.take(seen) or self.stale
        else:
            self._reach(seen)
            self.stale = self.stale or seen.boot_id != newest.boot_id or seen.seq != newest.seq

    def take(self, seen: Observation) -> bool:
        """The next one in order. False: the clock did not take it."""
        self._reach(seen)
        self.newest = seen
        if self.links is not None or seen.links is not None or seen.presence is not None:
            self.links = self.links or Told()
            self.links.add(seen)
        if seen.verified:
            self.verified = seen
        return self.clock.add(seen) in (Fold.ADDED, Fold.RESTARTED)

    def _reach(self, seen: Observation) -> None:
        if self.latest_at is None or seen.ended_at > self.latest_at:
            self.latest_at = seen.ended_at


def _follows(newest: Observation, seen: Observation) -> bool:
    return seen.seq > newest.seq if seen.boot_id == newest.boot_id else seen.ended_at >= newest.ended_at


def _fold(windows: Iterable[Observation]) -> _Machine:
    machine = _Machine()
    for seen in in_order(windows):
        machine.take(seen)
    return machine


def _missing(machine: _Machine | None, mine: Voice | None, voice: Voice) -> int | None:
    """How many windows were kept since ours, if nothing says that they are anything but the next ones of the same boot; else None."""
    if machine is None or mine is None or machine.newest is None or machine.stale or not mine.kept:
        return None
    same = (mine.boot_id, mine.retired, mine.conflict_at) == (voice.boot_id, voice.retired, voice.conflict_at)
    missing = voice.kept - mine.kept
    return missing if same and machine.newest.boot_id == voice.boot_id and 0 < missing <= _FOLLOWED else None


class Watch:
    """
    Thread-safe. Reads may ask the store (after a late report) and then raise StoreError.

    A machine whose newest window ended longer than the horizon before the others' is forgotten; its voice is not, since
    that tells a silent agent from none.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._lock = threading.RLock()
        self._store = store
        self._machines: dict[ResourceId, _Machine] = {}
        self._voices: dict[ResourceId, Voice] = {}
        self._touched: set[ResourceId] | None = None  # while a rebuild runs: what came in meanwhile
        self._swept_at: datetime | None = None

    def rebuild(self, store: Store, now: datetime) -> None:
        """Fold everything the store kept within the horizon. May be repeated; what comes in meanwhile is not lost."""
        with self._lock:
            self._store = store
            self._touched = set()
        try:
            voices = store.voices()
            machines: dict[ResourceId, _Machine] = {}
            for resource, windows in groupby(store.observations(since=now - HORIZON), key=lambda seen: seen.resource):
                machines[resource] = _fold(windows)
            with self._lock:
                for resource in self._touched or ():
                    kept = self._machines.get(resource)
                    if kept is not None:
                        machines[resource] = kept
                        kept.stale = True
                        kept.changes += 1
                    if resource in self._voices:
                        voices[resource] = self._voices[resource]
                self._machines, self._voices = machines, voices
        finally:
            with self._lock:
                self._touched = None

    def catch_up(self, store: Store, now: datetime) -> None:
        """
        Notice what another process wrote: each report renews its machine's voice, so one that is not ours tells of windows that
        are missing here. Where all reports come in here, nothing is read but voices.
        """
        self._take_up(store, store.voices(), now)
        with self._lock:
            self._forget(now - HORIZON)

    def catch_up_on(self, store: Store, resources: Iterable[ResourceId], now: datetime) -> None:
        """The same for a few machines: right before one of them is acted on."""
        stored = {resource: store.voice(resource) for resource in resources}
        self._take_up(store, {resource: voice for resource, voice in stored.items() if voice is not None}, now)

    def _take_up(self, store: Store, stored: dict[ResourceId, Voice], now: datetime) -> None:
        """
        Voices count the windows that were kept. Where exactly as many follow our newest one, only those are read; else the
        machine is folded again when it is next asked for.
        """
        following: dict[ResourceId, tuple[_Machine, int, Voice, int]] = {}
        points: list[tuple[ResourceId, str, int]] = []
        with self._lock:
            self._store = store
            for resource, voice in stored.items():
                machine = self._machines.get(resource)
                missing = _missing(machine, self._voices.get(resource), voice)
                if machine is None or machine.newest is None or missing is None:
                    self._hear(resource, voice, now)
                    continue
                following[resource] = (machine, machine.changes, voice, missing)
                points.append((resource, machine.newest.boot_id, machine.newest.seq))
        if not points:
            return
        news = store.windows_after(points, _FOLLOWED + 1)  # outside the lock: others go on
        with self._lock:
            for resource, (machine, changes, voice, missing) in following.items():
                windows = news.get(resource, ())
                if self._machines.get(resource) is machine and machine.changes == changes and len(windows) == missing:
                    for seen in windows:
                        machine.add(seen)
                    self._voices[resource] = voice
                else:
                    self._hear(resource, voice, now)

    def _hear(self, resource: ResourceId, voice: Voice, now: datetime) -> None:
        mine = self._voices.get(resource)
        if mine is not None and (mine == voice or mine.last_at > voice.last_at):  # ours is newer than what was read
            return
        self._voices[resource] = voice
        if now - voice.last_at > HORIZON:
            return
        machine = self._machines.setdefault(resource, _Machine())
        machine.stale = True
        machine.changes += 1
        machine.latest_at = max(machine.latest_at or voice.last_at, voice.last_at)

    def add(self, seen: Observation, voice: Voice | None = None) -> None:
        """A window that the store keeps, and the voice as it is after it."""
        with self._lock:
            if self._touched is not None:
                self._touched.add(seen.resource)
            self._machines.setdefault(seen.resource, _Machine()).add(seen)
            if voice is not None:
                self._voices[seen.resource] = voice
            if self._swept_at is None or seen.received_at - self._swept_at >= _SWEEP_EVERY:
                self._swept_at = seen.received_at
                self._forget(seen.received_at - HORIZON)

    def refold(self, resource: ResourceId) -> None:
        """What the store keeps of it has changed (`Store.distrust`): fold it again before the next answer."""
        with self._lock:
            machine = self._machines.get(resource)
            if machine is not None:
                machine.stale = True
                machine.changes += 1

    def quiet(self, resource: ResourceId, limits: Limits, spans: tuple[timedelta, ...] = (), *, served: bool = False) -> Quiet | None:
        """The idle clock's answer (see `IdleClock.quiet`); None: no verified window in its present stretch, or none at all."""
        return self._ask(resource, lambda machine: machine.clock.quiet(limits, spans, served=served))

    def quiet_gpus(self, resource: ResourceId, limit: float) -> dict[str, datetime] | None:
        """See `IdleClock.quiet_gpus`."""
        return self._ask(resource, lambda machine: machine.clock.quiet_gpus(limit))

    def newest(self, resource: ResourceId) -> Observation | None:
        """The newest window of any voice within the horizon."""
        return self._ask(resource, lambda machine: machine.newest)

    def newest_verified(self, resource: ResourceId) -> Observation | None:
        return self._ask(resource, lambda machine: machine.verified)

    def links(self, resources: Iterable[ResourceId]) -> dict[ResourceId, Told]:
        """
        What each machine told of its connections, of those whose agents look for them. Of one that is not folded only the
        last windows are read, since more is not remembered: a command that explains one machine asks for all of them.
        """
        found: dict[ResourceId, Told] = {}
        unfolded: list[tuple[ResourceId, datetime]] = []
        with self._lock:
            store = self._store
            for resource in resources:
                machine = self._machines.get(resource)
                if machine is not None and machine.stale and store is not None and machine.latest_at is not None:
                    unfolded.append((resource, machine.latest_at))
                elif machine is not None and machine.links is not None:
                    found[resource] = machine.links
        for resource, latest_at in unfolded:
            assert store is not None
            told = Told()
            for seen in in_order(store.observations(latest_at - REMEMBERED - _SOME_MORE, resource)):
                told.add(seen)
            found[resource] = told
        return found

    def peek(self, resource: ResourceId) -> Observation | None:
        """The newest window as far as it is folded, without asking the store; it may have been distrusted since."""
        with self._lock:
            machine = self._machines.get(resource)
            return machine.newest if machine is not None else None

    def voice(self, resource: ResourceId) -> Voice | None:
        """None: no agent ever spoke for it."""
        with self._lock:
            return self._voices.get(resource)

    def voices(self) -> dict[ResourceId, Voice]:
        with self._lock:
            return dict(self._voices)

    def __len__(self) -> int:
        """Machines with a window in memory."""
        with self._lock:
            return len(self._machines)

    def _forget(self, before: datetime) -> None:
        gone = [id for id, machine in self._machines.items() if machine.latest_at is None or machine.latest_at < before]
        for resource in gone:
            del self._machines[resource]

    def _ask(self, resource: ResourceId, question: Callable[[_Machine], _Answer | None]) -> _Answer | None:
        for _ in range(3):
            with self._lock:
                machine = self._machines.get(resource)
                if machine is None:
                    return None
                if not machine.stale:
                    return question(machine)
                store, changes = self._store, machine.changes
            if store is None:  # something is known to be missing and cannot be read: not known
                return None
            folded = self._read(store, machine, resource)  # outside the lock: others go on
            with self._lock:
                if self._machines.get(resource) is machine and machine.changes == changes:
                    self._machines[resource] = folded
        with self._lock:  # reports come in faster than we fold: make them wait this once
            machine = self._machines.get(resource)
            if machine is None or self._store is None:
                return None
            if machine.stale:
                machine = self._machines[resource] = self._read(self._store, machine, resource)
            return question(machine)

    @staticmethod
    def _read(store: Store, machine: _Machine, resource: ResourceId) -> _Machine:
        since = machine.latest_at
        return _fold(store.observations(since - HORIZON, resource)) if since is not None else _Machine()
