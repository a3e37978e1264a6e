"""What is known about activity: one report window as the reaper keeps it, and what the idle clock makes of many."""

import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reaper.model.presence import Links, Presence
from reaper.model.resource import ResourceId

HELD_BYTES = 256 * 1024 * 1024
"""More than this on a GPU, beyond what the driver reserves, is somebody's (a CUDA context alone is about that much)."""


# The names that NVIDIA's virtual GPUs have in a guest: "GRID T4-16Q", "NVIDIA A100-40C", "NVIDIA A100-1-5CME".
_VIRTUAL = re.compile(r"^GRID |\bvGPU\b|-\d+[QABC](ME)?$")


class Activity(StrEnum):
    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


class State(StrEnum):
    """What an activity is shown as."""

    WORKING = "working"
    STARVED = "starved"  # busy: a job waits for its data
    HELD = "held"  # idle: memory taken, nothing running
    IDLE = "idle"
    SILENT = "silent"  # unknown: there was an agent, and it stopped talking
    NO_AGENT = "no agent"  # unknown: there never was one
    BLIND = "blind"  # unknown: the agent talks and cannot see, or cannot be trusted

    @property
    def activity(self) -> Activity:
        match self:
            case State.WORKING | State.STARVED:
                return Activity.BUSY
            case State.HELD | State.IDLE:
                return Activity.IDLE
            case _:
                return Activity.UNKNOWN


class Signal(StrEnum):
    """What a track of the idle clock follows. GPU tracks are one per device."""

    GPU = "gpu"
    CPU = "cpu"  # ratio of all cores of the host
    DISK = "disk"  # bytes per second, reads and writes
    NET = "net"  # bytes per second, both ways
    WAIT = "data wait"  # the worst process tree's share of the window spent waiting for data
    TREE_CPU = "gpu owner's cpu"  # the busiest process tree that holds a GPU, in cores
    PEOPLE = "people at work"  # 1: somebody typed or a kernel ran a cell, else 0
    WORK_CPU = "people's cpu"  # the busiest tree of somebody's processes, GPU or not, in cores
    WORK_IO = "people's reads and writes"  # the same in bytes per second, scaled to the disk limit

    __hash__ = str.__hash__  # that of an enum is Python, and every window of the fleet asks for it dozens of times


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that holds a GPU. ``since_s``: how long it has held it while nothing ran, at the window's end."""

    pid: int
    name: str | None = None
    user: str | None = None
    mem_bytes: int | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpuWindow:
    """One GPU in one report window. Ratios 0..1; ``covered_s`` seconds between good samples; None: not known."""

    uuid: str
    model: str | None = None
    peak: float | None = None
    mean: float | None = None
    covered_s: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    processes: int | None = None
    trouble: str | None = None
    holders: tuple[Holder, ...] | None = None

    @property
    def work(self) -> float | None:
        """
        The peak as limits see it. A virtual GPU's share is of a slice of time that its host gives, and without a licence
        is throttled to little: there any sample above zero is work.
        """
        if self.peak is None or self.peak <= 0.0 or self.model is None:
            return self.peak
        return 1.0 if _VIRTUAL.search(self.model) is not None else self.peak

    @property
    def held(self) -> bool:
        """Somebody has something on it. With neither figure known it counts as held: that term is the longer one."""
        if self.processes is None and self.mem_used_bytes is None:
            return True
        return (self.processes is not None and self.processes > 0) or (
            self.mem_used_bytes is not None and self.mem_used_bytes > HELD_BYTES
        )


@dataclass(frozen=True, slots=True)
class LoaderWindow:
    """
    One process tree that holds a GPU: its share of the window spent waiting for data, and its CPU in cores.

    ``wait`` is the agent's estimate, ``exact`` what the job itself measured in ``exact_s`` seconds up to the window's end.
    ``off_gpu``: a process that told of itself and holds no GPU; of it nothing but ``exact`` is known. The rest is evidence,
    for people: shares of the time the tree was looked at, ``host_`` of the whole machine; see `agent.report.Loader`.
    """

    id: str
    wait: float | None = None
    cpu_cores: float | None = None
    exact: float | None = None
    exact_s: float | None = None
    batches: int | None = None
    off_gpu: bool | None = None
    blocked: float | None = None
    read_bytes: int | None = None
    read_calls: int | None = None
    called_bytes: int | None = None
    write_bytes: int | None = None
    worker_cpu_cores: float | None = None
    delayed: float | None = None
    io_pressure: float | None = None
    host_io_pressure: float | None = None
    host_received_bytes_per_s: float | None = None

    @property
    def waited(self) -> float | None:
        """The larger of both: what a job says of itself can make its machine busy, and never idle."""
        known = [share for share in (self.wait, self.exact) if share is not None and 0.0 <= share < math.inf]
        return max(known) if known else None

    @property
    def shown(self) -> float | None:
        """The better of both, for people: the job's own where it told something."""
        return self.exact if self.exact is not None else self.wait


@dataclass(frozen=True, slots=True)
class Job:
    """
    One job that used the GPUs. ``ended_age_s``: at the window's end, since its last GPU process or its launcher ended,
    whichever came later; None: one of its GPU processes lives. ``launcher``: what lives and could start the next one;
    ``launcher_known``: whether none is an answer. None and False are "not known".
    """

    id: str
    ended_age_s: float | None = None
    launcher: str | None = None
    launcher_known: bool | None = None

    @property
    def over(self) -> bool:
        return self.ended_age_s is not None and 0.0 <= self.ended_age_s < math.inf and self.launcher is None and self.launcher_known is True


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody on the machine. ``how``: "gpu" (a process on a GPU) or "login"; ``idle_s``: since somebody last typed."""

    user: str
    uid: int | None = None
    how: str = "gpu"
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """
    One disk that a stop wipes. ``use``: "mounted", "unmounted", "member" (of RAID, LVM or a swap), "unknown"; ``mount``: the
    one place where all of it is seen; ``used`` 0..1; ``written_age_s``: at least so long no write, at the window's end.
    """

    device: str
    use: str
    mount: str | None = None
    used: float | None = None
    written_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters since boot; None: not known."""

    gpu_energy_j: float | None = None
    cpu_s: float | None = None
    disk_bytes: int | None = None
    net_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """
    One report window of one machine, placed in our time.

    ``ended_at`` is receipt minus the report's age; ``up_s`` is the agent's boot clock at the window's end, and lengths
    inside one boot come from it alone. ``verified``: the voice is this machine's own; an unverified one can say BUSY,
    never IDLE. ``orchestrators``: None is "could not look"; so it is for ``disks``, the local ones,
    ``jobs`` and ``people``, and () is "looked, none". ``presence`` None: an agent that does not look who works beside its
    GPUs; ``links`` None: no process with a GPU could be looked at, or there is none.
    """

    resource: ResourceId
    boot_id: str
    seq: int
    up_s: float
    window_s: float
    started_at: datetime
    ended_at: datetime
    received_at: datetime
    verified: bool
    sampler: str
    because: str | None = None
    agent: str | None = None
    expected_gpus: int | None = None
    gpus: tuple[GpuWindow, ...] = ()
    loaders: tuple[LoaderWindow, ...] | None = None
    totals: Totals = field(default_factory=Totals)
    cpu_ratio: float | None = None
    cpus: int | None = None
    disk_bytes_per_s: float | None = None
    net_bytes_per_s: float | None = None
    orchestrators: tuple[str, ...] | None = None
    hook_installed: bool = False
    hook_outcome: str | None = None
    disks: tuple[LocalDisk, ...] | None = None
    jobs: tuple[Job, ...] | None = None
    people: tuple[Person, ...] | None = None
    presence: Presence | None = None
    links: Links | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What still counts as quiet: GPU peaks at or below ``gpu``; the others strictly below their figure."""

    gpu: float
    cpu: float
    disk_bytes_per_s: float
    net_bytes_per_s: float
    wait: float


@dataclass(frozen=True, slots=True)
class Quiet:
    """
    The idle clock's answer for one set of limits, up to the end of the newest report that counts.

    ``since``: every signal of every device at or below its limit from then on, inside one stretch without a hole.
    ``unheld_since``: the same, and nothing held on any GPU. ``until``: the end of the newest verified window.
    ``covered``: for each asked span, the share 0..1 that the least covered expected device covers, and its name.
    ``host_covered``: the same for the host's own signals. ``last_busy``: which signal moved last, and its value.
    ``devices``: GPUs with a peak in the newest window.
    """

    since: datetime
    unheld_since: datetime
    until: datetime
    began_at: datetime
    period: timedelta
    devices: int
    covered: dict[timedelta, tuple[float, str]] = field(default_factory=dict)
    host_covered: dict[timedelta, tuple[float, str]] = field(default_factory=dict)
    last_busy: tuple[Signal, float] | None = None

    @property
    def quiet_for(self) -> timedelta:
        return self.until - self.since

    @property
    def unheld_for(self) -> timedelta:
        return self.until - self.unheld_since


@dataclass(frozen=True, slots=True)
class Voice:
    """
    Who speaks for a machine. ``boot_id`` is the living one, ``retired`` the ones before it (newest last, bounded).
    ``conflict_at``: the last time two spoke at once, or a retired one came back: both are unverified since.
    ``first_at``: the first report ever, which is what tells a silent agent from no agent.
    """

    resource: ResourceId
    boot_id: str
    first_at: datetime
    boot_since: datetime
    last_at: datetime
    retired: tuple[str, ...] = ()
    conflict_at: datetime | None = None
    conflict: str | None = None
    kept: int = 0
    """Windows kept of this machine up to this one, by every process. 0: not counted (written by an earlier version)."""
