"""
What the sources hand to the loop: plain values, ``None`` for whatever could not be read.

A source is anything with the methods below. The real ones are `gpu.NvmlGpus`,
`loader.ProcLoaders` and `host.ProcHost`; the demo and the tests hand in scripted ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from agent.datapath import Evidence, Exact
from agent.report import Disk, Holder, Links, Person, Slice, Value

# The words of `Sampler.state` on the wire. Whatever is not "ok" or "no-gpu" means that GPU figures are not known.
OK = "ok"  # the driver answered; single figures may still be absent, see a GPU's `trouble`
STUCK = "stuck"  # a call into the driver does not return
NO_LIBRARY = "no-library"  # the machine has an NVIDIA device, but libnvidia-ml.so.1 is not installed
NO_DRIVER = "no-driver"  # the library is there, the kernel driver is not loaded
MISMATCH = "mismatch"  # library and kernel driver differ after an upgrade: reboot; jobs that already run are fine
NO_PERMISSION = "no-permission"  # the agent may not open the driver
NO_GPU = "no-gpu"  # nothing to read, and nothing is expected
FAILED = "failed"  # anything else; `because` has the words


class Sample(NamedTuple):
    """
    Utilisation, shares 0..1: ``ratio`` is the highest of ``number`` samples of the driver
    and ``total`` their sum (None: ``number`` times ``ratio``); the last of them was taken
    at ``at_s`` (boot clock), and none before the `Sample` before it. ``low``: how many of them stood low (None: all or none, as ``ratio`` does).
    """

    at_s: float
    ratio: float
    number: int = 1
    total: Optional[float] = None
    low: Optional[int] = None


@dataclass(frozen=True, eq=False, repr=False)
class GpuReading(Value):
    """
    One GPU at one beat. ``samples``: utilisation since the beat before, oldest first,
    the driver's samples folded where it had many; empty when there was none. ``processes`` counts all that hold the GPU except
    nobody's work; ``pids`` are those of them that a look into /proc makes sense for, and
    ``pid_bytes`` the memory that each holds (None: not said).
    """

    uuid: str
    model: Optional[str] = None
    samples: Tuple[Sample, ...] = ()
    mem_used_bytes: Optional[int] = None
    mem_total_bytes: Optional[int] = None
    power_w: Optional[float] = None
    energy_j: Optional[float] = None
    processes: Optional[int] = None
    pids: Tuple[int, ...] = ()
    trouble: Optional[str] = None
    pid_bytes: Mapping[int, Optional[int]] = field(default_factory=dict)
    energy_at_s: Optional[float] = None  # boot clock of the energy counter's reading
    slices: Optional[Tuple[Slice, ...]] = None  # of a MIG GPU; None: it is none, or they could not be listed


@dataclass(frozen=True, eq=False, repr=False)
class GpuSnapshot(Value):
    """
    All GPUs at one beat. ``count``: how many the driver, or failing that the PCI bus,
    says the machine has; None when neither says. ``beat_s``: the beat this source
    needs now, None when the configured one will do.
    """

    state: str = OK
    because: Optional[str] = None
    gpus: Tuple[GpuReading, ...] = ()
    count: Optional[int] = None
    driver: Optional[str] = None
    beat_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class TreeReading(Value):
    """
    One process tree that holds GPUs, since the beat before.

    ``blocked``: a process of it is in state D. ``on_data_path``: blocked, or it read
    bytes. ``read_bytes`` and ``cpu_s`` are what was added since it was last looked at; None
    at the first sight and where /proc would not say. ``skipped``: its GPUs worked, so it
    did not wait, and /proc was not read; the next look brings what was added meanwhile.
    ``evidence``: what ``on_data_path`` was decided by; None at the first sight. ``members``: its processes, the holder first.
    ``exact``: what processes of it told themselves (`agent.loader_hook`). A tree without GPUs is of one that told of itself.
    """

    id: str
    gpus: Tuple[str, ...]
    blocked: Optional[bool] = None
    on_data_path: Optional[bool] = None
    read_bytes: Optional[int] = None
    cpu_s: Optional[float] = None
    skipped: bool = False
    evidence: Optional[Evidence] = field(default=None, compare=False)
    members: Tuple[int, ...] = field(default=(), compare=False)
    exact: Tuple[Exact, ...] = field(default=(), compare=False)


@dataclass(frozen=True, eq=False, repr=False)
class JobReading(Value):
    """
    One job. ``ended_s``: boot clock of the end of its last GPU process, or of its launcher where that came later; None
    while a GPU process lives. ``launcher``: a living one's name. ``launcher_known``: True once none was found a while
    after that end; False where it could not be looked for; None: not looked yet.
    """

    id: str
    ended_s: Optional[float] = None
    launcher: Optional[str] = None
    launcher_known: Optional[bool] = None


class AtWorkReading(NamedTuple):
    """
    One tree of somebody's work at one look, under a name that lasts. ``cpu_s`` and ``bytes``: what was added since the look
    before; None: that was the first, or it cannot be read. The rest as in `agent.report.AtWork`, ``idle_s`` at that look.
    """

    id: str
    kind: str
    user: Optional[str] = None
    uid: Optional[int] = None
    name: Optional[str] = None
    idle_s: Optional[float] = None
    cpu_s: Optional[float] = None
    bytes: Optional[int] = None
    busy: Optional[bool] = None
    busy_s: Optional[float] = None


class PresenceReading(NamedTuple):
    """One look at who works here, taken at ``at_s`` and ``for_s`` after the one before (None: the first)."""

    at_s: float
    for_s: Optional[float] = None
    at_work: Tuple[AtWorkReading, ...] = ()
    unread: Tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class WorkReading(Value):
    """
    Who works here, at one beat. ``jobs`` and ``people``: None is "could not look". ``holders`` by the GPU's UUID. ``presence``
    and ``links``: of the last look, which may have been some beats ago; None: there was none.
    """

    jobs: Optional[Tuple[JobReading, ...]] = None
    holders: Mapping[str, Tuple[Holder, ...]] = field(default_factory=dict)
    people: Optional[Tuple[Person, ...]] = None
    presence: Optional[PresenceReading] = None
    links: Optional[Links] = None


@dataclass(frozen=True, eq=False, repr=False)
class HostReading(Value):
    """Counters of the host since boot (seconds, bytes), gauges, and the orchestrators that live now (() is "looked, none")."""

    cpu_busy_s: Optional[float] = None
    cpu_total_s: Optional[float] = None
    cpus: Optional[int] = None
    mem_used_ratio: Optional[float] = None
    disk_bytes: Optional[int] = None
    net_bytes: Optional[int] = None
    orchestrators: Optional[Tuple[str, ...]] = None


class Reading(NamedTuple):
    """What one beat brought: the GPUs, and the trees that hold them (None: could not look)."""

    snapshot: GpuSnapshot
    trees: Optional[Tuple[TreeReading, ...]]
    work: Optional[WorkReading] = None


class GpuSource(Protocol):
    """
    Reads all GPUs. ``read`` is called from one thread only and does not raise for a
    GPU or figure that fails. ``doing`` names the driver call in progress, for a
    report about one that does not return; it is read from another thread.
    """

    @property
    def doing(self) -> str: ...

    def read(self) -> GpuSnapshot: ...

    def close(self) -> None: ...


class LoaderSource(Protocol):
    """Looks at the process trees behind the GPUs' pids. None: could not look; (): no process holds a GPU."""

    def look(self, gpus: Sequence[GpuReading]) -> Optional[Tuple[TreeReading, ...]]: ...


class DiskSource(Protocol):
    """
    Looks at the local disks, once per window; never raises. None: could not look; (): there are none. ``now_s``: the boot
    clock; ages are told as of ``end_s``, the window's end.
    """

    def read(self, now_s: float, end_s: float) -> Optional[Tuple[Disk, ...]]: ...


class WorkSource(Protocol):
    """Tells jobs, holders and people. Called once a beat, after the loaders, from the sampling thread."""

    def look(self, snapshot: GpuSnapshot) -> WorkReading: ...


class HostSource(Protocol):
    """Reads the host's counters. Called once per window; never raises for a single figure."""

    def read(self) -> HostReading: ...


class Log(Protocol):
    """Where the agent logs: the structlog logger of `log.configured`."""

    def debug(self, event: str, **keys: object) -> object: ...

    def info(self, event: str, **keys: object) -> object: ...

    def warning(self, event: str, **keys: object) -> object: ...

    def error(self, event: str, **keys: object) -> object: ...
