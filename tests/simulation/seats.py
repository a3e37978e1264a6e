"""
Where a daemon sits: its store and cloud as it sees them, with a trap that breaks it off at a chosen call.

Reads that nothing was written in between are answered from memory, so that a month costs seconds; every write goes to the
real store, and the first read after it comes from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reaper.errors import AnswerLost, HeardElsewhere, StoreError, Unreachable

_WRITES = {
    "save_listings": ("listings", "ledgers"), "save_seen_protections": ("seen_protections",), "save_marks": ("marks",),
    "add_snooze": ("snoozes",), "add_approval": ("approvals",), "finish_approval": ("approvals",),
    "begin_attempt": ("attempts",),
    "end_attempt": ("attempts",),
}  # fmt: skip
_OWN = (
    "voice", "voices", "snoozes", "debits", "add_observation", "observations", "before_and_after", "windows_after", "distrust", "acquire_lease",
    "set_facts", "edit_fact", "save_plan",
)  # fmt: skip
_KEPT = ("listings", "ledgers", "seen_protections", "marks", "approvals", "fact", "attempts")


class Crash(BaseException):
    """The daemon's process dies here, without a word."""


@dataclass(slots=True)
class Trap:
    """Springs at the ``at``-th call from now: ``kind`` "crash" or "error", ``after`` the call took effect or before."""

    kind: str
    at: int
    after: bool = False
    sprung: str | None = None

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        if self.sprung is not None:
            return call()
        self.at -= 1
        if self.at > 0:
            return call()
        if name in ("cloud.protections", "store.close"):
            self.at = 1
            return call()
        self.sprung = name
        if self.after:
            call()
        if self.kind == "crash":
            raise Crash(name)
        if name.startswith("store."):
            raise StoreError("database is locked")
        if name in ("cloud.stop", "cloud.start", "cloud.hibernate", "cloud.terminate", "cloud.snapshot"):
            raise AnswerLost(f"{name}: the connection was cut")
        raise Unreachable(f"{name}: no route to host")


@dataclass(slots=True)
class Memory:
    """What was read of one store since it was written last. All seats on one store share it."""

    kept: dict[Any, Any] = field(default_factory=dict)
    voices: dict[Any, Any] | None = None
    snoozes: tuple[datetime, tuple[Any, ...]] | None = None
    debits: dict[Any, tuple[datetime, tuple[Any, ...]]] = field(default_factory=dict)
    unwritten: list[tuple[Any, Any]] = field(default_factory=list)
    windows: set[tuple[Any, str, int]] = field(default_factory=set)

    def write_down(self, store: Any) -> None:
        """The windows of one tick, in one transaction, before anybody reads any. They are as durable as each by itself."""
        if self.unwritten:
            spoken, self.unwritten = self.unwritten, []
            assert all(store.add_observations(spoken)), "the store knew a window that its door did not"

    def forget(self, groups: tuple[str, ...]) -> None:
        for key in [key for key in self.kept if key[0] in groups]:
            del self.kept[key]
        if "snoozes" in groups:
            self.snoozes = None
        if "attempts" in groups:
            self.debits.clear()


class StoreSeat:
    """`reaper.ports.Store` for one daemon. ``trap``: asked for at every call."""

    def __init__(self, store: Any, memory: Memory, trap: Callable[[], Trap | None], acquired: Callable[[Any], None]) -> None:
        self._store, self._memory, self._trap, self._acquired = store, memory, trap, acquired

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._store, name)
        if not callable(inner):
            return inner
        own = getattr(type(self), f"_{name}", None) if name in _OWN else None
        own = own.__get__(self) if own is not None else None
        plain = own or (self._remembering(name, inner) if name in _KEPT else self._writing(name, inner) if name in _WRITES else inner)

        def call(*args: Any, **named: Any) -> Any:
            trap = self._trap()
            return plain(*args, **named) if trap is None else trap.around(f"store.{name}", lambda: plain(*args, **named))

        self.__dict__[name] = call
        return call

    def _remembering(self, name: str, inner: Any) -> Any:
        kept = self._memory.kept

        def read(*args: Any, **named: Any) -> Any:
            key = (name, args, tuple(named.items()))
            if key not in kept:
                kept[key] = inner(*args, **named)
            found = kept[key]
            return dict(found) if isinstance(found, dict) else found

        return read

    def _writing(self, name: str, inner: Any) -> Any:
        groups, memory = _WRITES[name], self._memory

        def write(*args: Any, **named: Any) -> Any:
            memory.forget(groups)
            return inner(*args, **named)

        return write

    def _set_facts(self, facts: dict[str, str | None]) -> None:
        for key in facts:
            self._memory.kept.pop(("fact", (key,), ()), None)
        self._store.set_facts(facts)
        self._memory.kept |= {("fact", (key,), ()): value for key, value in facts.items()}

    def _edit_fact(self, key: str, edit: Any) -> None:
        self._memory.kept.pop(("fact", (key,), ()), None)
        self._store.edit_fact(key, edit)

    def _save_plan(self, plan: Any) -> None:
        """One that says nothing is not worth a millisecond: nobody here reads it again."""
        if plan.actions or plan.withheld:
            self._store.save_plan(plan)

    def _acquire_lease(self, *args: Any) -> Any:
        lease = self._store.acquire_lease(*args)
        if lease is not None:
            self._acquired(lease)
        return lease

    def _voices(self) -> Any:
        if self._memory.voices is None:
            self._memory.voices = self._store.voices()
        return dict(self._memory.voices)

    def _voice(self, resource: Any) -> Any:
        if self._memory.voices is None:
            self._memory.voices = self._store.voices()
        return self._memory.voices.get(resource)

    def _add_observation(self, observation: Any, voice: Any, after: Any = ...) -> bool:
        memory, key = self._memory, (observation.resource, observation.boot_id, observation.seq)
        if after is not ... and self._voice(observation.resource) != after:
            raise HeardElsewhere(f"{observation.resource} was heard by another process meanwhile")
        if key in memory.windows:
            return False
        memory.windows.add(key)
        memory.unwritten.append((observation, voice))
        self._voice(observation.resource)
        assert memory.voices is not None
        memory.voices[voice.resource] = voice
        return True

    def _observations(self, *args: Any, **named: Any) -> Any:
        self._memory.write_down(self._store)
        return self._store.observations(*args, **named)

    def _before_and_after(self, *args: Any) -> Any:
        self._memory.write_down(self._store)
        return self._store.before_and_after(*args)

    def _windows_after(self, *args: Any, **named: Any) -> Any:
        self._memory.write_down(self._store)
        return self._store.windows_after(*args, **named)

    def _distrust(self, *args: Any) -> None:
        self._memory.write_down(self._store)
        self._store.distrust(*args)

    def _snoozes(self, active_at: datetime) -> Any:
        kept = self._memory.snoozes
        if kept is None or active_at < kept[0]:
            kept = self._memory.snoozes = (active_at, self._store.snoozes(active_at))
        return tuple(s for s in kept[1] if s.until > active_at)

    def _debits(self, action: Any, since: datetime) -> Any:
        kept = self._memory.debits.get(action)
        if kept is None or since < kept[0]:
            kept = self._memory.debits[action] = (since, self._store.debits(action, since))
        return tuple(d for d in kept[1] if d.at >= since)
