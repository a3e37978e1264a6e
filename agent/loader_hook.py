"""
How long a job really waits for its data, told by the job itself. Copy this one file into any repository, or import it.

    from agent.loader_hook import timed_loader

    for batch in timed_loader(loader):
        ...

The loader stays what it is: its length, attributes, methods and type, as many iterations as it can give, its exceptions.
Only the time inside ``next()`` is measured, added up for the whole process, and sent to the agent of this machine: numbers
only, one datagram a second at most, over a local socket. Without an agent nothing is sent and nothing goes wrong. No thread,
no file, no open socket is kept, so `fork` has nothing to inherit. Standard library only, Python 3.8 and later, Linux.

``REAPER_AGENT_HOOK_SOCKET`` names another socket; ``off`` turns the measuring off.
"""

import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Optional, TypeVar, cast

VARIABLE = "REAPER_AGENT_HOOK_SOCKET"
DEFAULT_SOCKET = "/run/reaper-agent/hook.sock"
OFF = "off"

EVERY_S = 1.0
# What it says, little-endian: magic; 1 while inside next(); the run (a number drawn at its start); CLOCK_MONOTONIC at
# sending; seconds in all next() that returned; batches. The sums are since the run began, so a lost datagram loses nothing.
DATAGRAM = struct.Struct("<4sIQddQ")
MAGIC = b"RLW1"

_T = TypeVar("_T")
_now = time.monotonic


class _Meter:
    """The sums of one process. ``due``: when the next datagram may go; ``inside``: a next() is being measured."""

    __slots__ = ("batches", "due", "entered_at", "inside", "left_at", "path", "pid", "run", "wait_s")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As a new process: after a fork the parent's sums are the parent's."""
        self.pid = os.getpid()
        self.run = int.from_bytes(os.urandom(8), "little")
        self.path: Optional[str] = None  # not asked yet
        self.due = 0.0
        self.inside = False
        self.wait_s = 0.0
        self.batches = 0
        self.entered_at = self.left_at = float("inf")  # the last next(): when it began and when it returned

    # Between two datagrams the agent believes what the last one said, so one goes out before whatever is likely to be the
    # longer: the wait that begins, or the work after it.

    def entering(self, now: float) -> None:
        if not self.left_at - self.entered_at < now - self.left_at:  # the last wait, the last work; written so that "none yet" is told
            self.send(now, True)

    def leaving(self, began: float, now: float, over: bool) -> None:
        if over or not 0.0 <= began - self.left_at < now - began:
            self.send(now, False)

    def send(self, now: float, inside: bool) -> None:
        """Never waits and never raises. What cannot be sent is not kept: the next one says all of it."""
        try:
            if self.pid != os.getpid():  # a clone that no fork handler saw
                self.begin()
                return
            # Not quite in step, so that of many processes none always comes to a full socket.
            self.due = now + EVERY_S + (self.run + self.batches) % 61 / 1000.0
            if self.path is None:
                self.path = os.environ.get(VARIABLE) or DEFAULT_SOCKET
            if self.path == OFF:
                self.due = float("inf")
                return
            out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            try:
                out.sendto(DATAGRAM.pack(MAGIC, inside, self.run, now, self.wait_s, self.batches), self.path)
            finally:
                out.close()
        except Exception:  # noqa: BLE001,S110  whatever it is (no agent, full, forbidden, no descriptor left), the job comes first
            pass


_meter = _Meter()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_meter.begin)


class _Batches:
    """One iteration. All but ``next()`` is the real iterator's."""

    __slots__ = ("_it", "_next")

    def __init__(self, it: Any) -> None:
        self._it = it
        self._next: Callable[[], Any] = it.__next__

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Any:
        meter = _meter
        if meter.inside:  # a timed loader inside a timed loader, or beside it in another thread: this time is counted already
            return self._next()
        over = True
        began = _now()
        try:
            meter.inside = True
            if began >= meter.due:
                meter.entering(began)
            batch = self._next()
            meter.batches += 1
            over = False
            return batch
        finally:
            ended = _now()
            meter.inside = False
            meter.wait_s += ended - began
            if ended >= meter.due:
                meter.leaving(began, ended, over)
            meter.entered_at = began
            meter.left_at = ended

    def __length_hint__(self) -> Any:
        hint = getattr(type(self._it), "__length_hint__", None)
        return hint(self._it) if hint is not None else NotImplemented

    def __getattr__(self, name: str) -> Any:  # close, send, throw, ...
        return getattr(self._it, name)


class _Timed:
    """A loader whose iterations are measured. It says that it is what it wraps, so `isinstance` is as before."""

    __slots__ = ("_timed_batches", "_timed_loader", "__weakref__")

    def __init__(self, loader: Any) -> None:
        object.__setattr__(self, "_timed_loader", loader)
        if hasattr(type(loader), "__next__"):
            object.__setattr__(self, "_timed_batches", _Batches(loader))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._timed_loader)

    def __iter__(self) -> Any:
        it = iter(self._timed_loader)
        return self if it is self._timed_loader else _Batches(it)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_timed_loader"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._timed_loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._timed_loader, name)

    def __dir__(self) -> Any:
        return dir(self._timed_loader)

    def __repr__(self) -> str:
        return "timed_loader(%r)" % (self._timed_loader,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return timed_loader, (self._timed_loader,)


def _hand_on(name: str) -> Callable[..., Any]:
    def call(self: Any, *given: Any, **named: Any) -> Any:
        return getattr(type(self._timed_loader), name)(self._timed_loader, *given, **named)

    call.__name__ = name
    return call


def _next(self: Any) -> Any:
    return self._timed_batches.__next__()


# Python looks these up in the type, so each kind of loader gets a type of its own, with those that it has and no others:
# a loader without a length must not seem to have one.
_SPECIAL = (
    "__len__", "__length_hint__", "__getitem__", "__contains__", "__bool__", "__reversed__", "__call__", "__enter__", "__exit__",
    "__eq__", "__hash__", "__add__", "__or__", "__rshift__",
)  # fmt: skip
_kinds: Dict[type, type] = {}


def _kind(of: type) -> type:
    kind = _kinds.get(of)
    if kind is None:
        own = {name: _hand_on(name) for name in _SPECIAL if getattr(of, name, None) not in (None, getattr(object, name, None))}
        if hasattr(of, "__next__"):
            own["__next__"] = _next
        kind = _kinds[of] = type("Timed", (_Timed,), {"__slots__": (), **own})
    return kind


def timed_loader(loader: _T) -> _T:
    """
    The same loader, with the time that its user waits in ``next()`` measured. Anything that can be iterated will do; what
    cannot, and what is timed already, comes back as it is.
    """
    try:
        of: type = type(loader)
        if issubclass(of, (_Timed, _Batches)) or not (hasattr(of, "__iter__") or hasattr(of, "__getitem__")):
            return loader
        return cast(_T, _kind(of)(loader))
    except Exception:  # noqa: BLE001  a loader that cannot be looked at is used without being measured
        return loader
