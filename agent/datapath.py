"""
Whether a process tree stands on its data path: what was seen of it between two looks, and what that means (pure).

The signs are those that a job shows which feeds itself: it sleeps in the kernel for a disk or a mount (state D), bytes are
read or written, its processes compute, or the machine receives while they do a little of it. Each piece of evidence is
its own, and absent where it cannot be read; what is absent is no sign, and what cannot be read at all leaves the answer open.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Dict, List, Optional, Tuple

from agent.report import Value

# A second of a tree that feeds its GPUs, at the least (of storage any byte). Below these lies what idle programs do as well: a notebook's
# server, its autosave, a logger that looks at the machine every few seconds.
CALLS_BYTES = 32 << 10  # through read calls: page cache, pipes, and mounts of which storage's own count knows nothing
WRITTEN_BYTES = 1 << 20  # a checkpoint; logs are less
CORES = 0.2
RECEIVED_BYTES = 1 << 20  # by the machine, while the tree does
ALIVE_CORES = 0.01  # at least so much
STALLED_RATIO = 0.1  # of its group's time, or of its own, waiting for a block device

@dataclass(frozen=True, eq=False, repr=False)
class Evidence(Value):
    """
    One tree between two looks that lay ``for_s`` seconds apart; None is "not read". ``blocked``: a process of it was in state
    D at the look. Bytes and calls are sums over those of its processes that would say, which is all of them only where
    ``complete``: ``read_bytes`` what storage delivered, ``called_bytes`` what read calls returned, ``write_bytes`` what went to
    storage, ``put_bytes`` what write calls took. ``cpu_s`` of all, ``worker_cpu_s`` of those below the GPU's holder.
    ``delayed_s``: waited for block devices, where the kernel accounts it. ``stalled_s``: its control group's "some" of io
    pressure. ``host_``: the same and the bytes received, of the whole machine.
    """

    for_s: float
    blocked: Optional[bool] = None
    complete: bool = False
    read_bytes: Optional[int] = None
    read_calls: Optional[int] = None
    called_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    put_bytes: Optional[int] = None
    cpu_s: Optional[float] = None
    worker_cpu_s: Optional[float] = None
    delayed_s: Optional[float] = None
    stalled_s: Optional[float] = None
    host_stalled_s: Optional[float] = None
    host_received_bytes: Optional[int] = None


def signs(seen: Evidence) -> Tuple[str, ...]:
    """What says that the tree is on its data path, by name."""
    for_s = max(seen.for_s, 0.001)

    def rate(amount: Optional[float]) -> float:
        return amount / for_s if amount is not None else -1.0

    cores = rate(seen.cpu_s)
    found = (
        ("blocked", seen.blocked is True),
        ("storage", (seen.read_bytes or 0) > 0),
        ("reading", rate(seen.called_bytes) >= CALLS_BYTES),
        ("writing", max(rate(seen.write_bytes), rate(seen.put_bytes)) >= WRITTEN_BYTES),
        ("computing", cores >= CORES),
        ("receiving", rate(seen.host_received_bytes) >= RECEIVED_BYTES and cores >= ALIVE_CORES),
        ("stalled", max(rate(seen.delayed_s), rate(seen.stalled_s)) >= STALLED_RATIO),
    )
    return tuple(name for name, there in found if there)


def on_data_path(seen: Evidence) -> Optional[bool]:
    """
    One sign is enough for True. None: none is there, and what would show the commonest ones could not be read: the state of
    its processes, their CPU, or what they read.
    """
    if signs(seen):
        return True
    return None if seen.blocked is None or seen.cpu_s is None or not seen.complete else False


# --- over a window ---

@dataclass(frozen=True, eq=False, repr=False)
class EvidenceSum(Value):
    """Evidence folded over a window. A sum that lacks a part is None: a part of it would read as little."""

    for_s: float = 0.0
    looks: int = 0
    sums: Tuple[Optional[float], ...] = ()

    def add(self, seen: Evidence) -> EvidenceSum:
        now = tuple(getattr(seen, name) if seen.complete or name not in _COUNTED else None for name in _SUMMED)
        sums = now if not self.looks else tuple(a + b if a is not None and b is not None else None for a, b in zip(self.sums, now))
        return EvidenceSum(self.for_s + seen.for_s, self.looks + 1, sums)

    def on_the_wire(self) -> Dict[str, object]:
        """Fields of the report's `Loader` beside those that `TreeSpan` fills: sums as they are, times as shares, bytes received as a rate."""
        if not self.looks or self.for_s <= 0.0:
            return {}
        had = dict(zip(_SUMMED, self.sums))
        told: Dict[str, object] = {"read_calls": had["read_calls"], "called_bytes": had["called_bytes"], "write_bytes": had["write_bytes"]}
        for field, name in (
            ("worker_cpu_cores", "worker_cpu_s"), ("delayed_ratio", "delayed_s"), ("io_pressure_ratio", "stalled_s"),
            ("host_io_pressure_ratio", "host_stalled_s"), ("host_received_bytes_per_s", "host_received_bytes"),
        ):  # fmt: skip
            value = had[name]
            told[field] = round(_share(value / self.for_s, field), 4) if value is not None else None
        return told


def _share(value: float, field: str) -> float:
    """Several processes wait at once, and a counter is read a moment after the clock: a share ends at 1."""
    return min(value, 1.0) if field.endswith("_ratio") else value


_SUMMED = tuple(field.name for field in fields(Evidence) if field.name not in ("for_s", "blocked", "complete"))
_COUNTED = ("read_bytes", "read_calls", "called_bytes", "write_bytes", "put_bytes")


# --- told by the job itself ---


@dataclass(frozen=True, eq=False, repr=False)
class Exact(Value):
    """
    What one process's own count says of the time since the look before: it was watched for ``covered_s`` and waited for
    ``wait_s`` of it, and got so many ``batches``. ``holds``: it is one that holds a GPU.
    """

    pid: int
    covered_s: float
    wait_s: float
    batches: int = 0
    holds: bool = False


def exact_of(parts: Dict[int, Exact]) -> Optional[Exact]:
    """
    Of the processes of one tree the one that speaks for it: one that holds a GPU rather than one that does not, then the one that
    waited for the largest share. None: nobody told anything.
    """
    told: List[Exact] = [one for one in parts.values() if one.covered_s > 0.0]
    return max(told, key=lambda one: (one.holds, one.wait_s / one.covered_s, -one.pid)) if told else None


def add_exact(before: Dict[int, Exact], more: Tuple[Exact, ...]) -> Dict[int, Exact]:
    """With more of each."""
    found = dict(before)
    for one in more:
        was = found.get(one.pid, Exact(one.pid, 0.0, 0.0))
        found[one.pid] = Exact(one.pid, was.covered_s + one.covered_s, was.wait_s + one.wait_s, was.batches + one.batches, one.holds)
    return found
