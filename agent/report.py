"""
The wire: what an agent sends to the reaper, once per report window.

Both sides import this one file (with `fields`, which it is made of), and nothing else of
the other side. Stdlib only, Python 3.9 and later. Agents in the field are older than daemons, so `decode` accepts
every minor addition of every version since the first, ignores fields it does not
know, and refuses an unknown *major* version with an answer that says so. Golden
files in tests/wire/ are kept for ever.

Units are in the names: ``_ratio`` is a share 0..1, ``_bytes`` bytes, ``_w`` watts,
``_j`` joules, ``_s`` seconds. ``None`` (absent on the wire) means *not known*, never
zero: a figure that failed, is unsupported, stale or out of range is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

from agent.fields import MAX_BODY_BYTES as MAX_BODY_BYTES
from agent.fields import MAX_ITEMS as MAX_ITEMS
from agent.fields import MAX_TEXT as MAX_TEXT
from agent.fields import Bad as _Bad
from agent.fields import address, flag, list_of, load, number, parts, resource, whole, words
from agent.fields import brief as _brief
from agent.fields import is_address as is_address
from agent.fields import is_resource_id as is_resource_id

VERSION = 1

_FOREVER_S = 20 * 366 * 86400.0
_MOST_WINDOW_S = 3600.0
_MOST_COUNT = 2**63 - 1


class ReportError(ValueError):
    """
    A body that is not a report. ``path`` names the field (``gpus[3].peak_ratio``),
    ``resource`` the sender as far as it could be read, ``remedy`` what to do.
    """

    def __init__(self, path: str, problem: str, resource: str = "?", remedy: str = "") -> None:
        self.path, self.problem, self.resource, self.remedy = path, problem, resource, remedy
        super().__init__("report of %s: %s %s%s" % (resource, path, problem, "; " + remedy if remedy else ""))


class UnknownVersion(ReportError):
    """The report's major version is newer than this reaper."""


class Value:
    """
    A frozen dataclass of ours compares, hashes and shows itself with these. Left to itself
    `dataclass` compiles three functions more for each of thirty classes, which every start
    of every agent pays for. Fields with ``compare=False`` are left out, as there.
    """

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(_compared(self).values()))

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % pair for pair in vars(self).items()))


def _compared(value: Any) -> Dict[str, Any]:
    fields = value.__dataclass_fields__
    return {name: item for name, item in vars(value).items() if fields[name].compare}


@dataclass(frozen=True, eq=False, repr=False)
class Sampler(Value):
    """
    How the sampling itself is doing. ``state`` is "ok" or a fixed word (see agent/readings.py);
    ``because`` is for people; ``version`` is the agent's, then the driver's after a slash when known ("0.1.0/580.65.06").
    """

    state: str
    because: Optional[str] = None
    beat_s: Optional[float] = None
    version: Optional[str] = None


@dataclass(frozen=True, eq=False, repr=False)
class Totals(Value):
    """Counters since boot. They show work done in a hole between reports."""

    gpu_energy_j: Optional[float] = None
    cpu_s: Optional[float] = None
    disk_bytes: Optional[int] = None
    net_bytes: Optional[int] = None


@dataclass(frozen=True, eq=False, repr=False)
class Holder(Value):
    """
    One process that holds memory on a GPU. ``user``: a name, else the number; ``since_s``: how long it has held it without
    running anything. Command lines are never sent.
    """

    pid: int
    name: Optional[str] = None
    user: Optional[str] = None
    mem_bytes: Optional[int] = None
    since_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class Slice(Value):
    """One instance of a MIG GPU, listed under that GPU. It has no utilisation of its own; figures as in `Gpu`."""

    uuid: str
    mem_used_bytes: Optional[int] = None
    mem_total_bytes: Optional[int] = None
    processes: Optional[int] = None


@dataclass(frozen=True, eq=False, repr=False)
class Gpu(Value):
    """
    One GPU over the report window.

    ``peak_ratio``/``mean_ratio``: of the samples; absent when there was none.
    ``covered_s``: seconds between two good samples, each gap counted at most two
    beats; the first gap starts at the last good sample of the window before.
    ``mem_used_bytes``: beyond what the driver reserves. ``processes``: how many
    hold the GPU, nobody's-work processes left out; both the most at any beat. ``trouble``: why figures are
    absent ("lost", "unsupported"), for people.
    """

    uuid: str
    model: Optional[str] = None
    peak_ratio: Optional[float] = None
    mean_ratio: Optional[float] = None
    covered_s: Optional[float] = None
    samples: Optional[int] = None
    mem_used_bytes: Optional[int] = None
    mem_total_bytes: Optional[int] = None
    power_w: Optional[float] = None
    energy_j: Optional[float] = None
    processes: Optional[int] = None
    trouble: Optional[str] = None
    holders: Optional[Tuple[Holder, ...]] = None
    slices: Optional[Tuple[Slice, ...]] = None


@dataclass(frozen=True, eq=False, repr=False)
class Loader(Value):
    """
    One process tree that holds a GPU, and how it stood with its data path.

    ``wait_ratio``: share of the window in which its GPUs stood low *and* the tree
    was on the data path (state D, or bytes read). ``cpu_cores``: CPU seconds per
    second of the tree (1.0 is one core). Absent when unreadable.

    The evidence beside it, summed or as a share of the time the tree was looked at: ``called_bytes`` through read calls,
    ``worker_cpu_cores`` of the processes below the holder, ``delayed_ratio`` waiting for block devices (processes together,
    1 at most) where the kernel accounts it, ``io_pressure_ratio`` of its control group; ``host_``: of the machine.

    ``exact_wait_ratio``: what the job itself measured, over ``exact_s`` seconds up to the window's end (more than the window
    where it was told late), with so many ``batches``; absent where it told nothing. ``off_gpu``: it told of itself and was
    seen on no GPU at any beat, so nothing else is known of it.
    """

    id: str
    wait_ratio: Optional[float] = None
    blocked_ratio: Optional[float] = None
    read_bytes: Optional[int] = None
    cpu_cores: Optional[float] = None
    read_calls: Optional[int] = None
    called_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    worker_cpu_cores: Optional[float] = None
    delayed_ratio: Optional[float] = None
    io_pressure_ratio: Optional[float] = None
    host_io_pressure_ratio: Optional[float] = None
    host_received_bytes_per_s: Optional[float] = None
    exact_wait_ratio: Optional[float] = None
    exact_s: Optional[float] = None
    batches: Optional[int] = None
    off_gpu: Optional[bool] = None


@dataclass(frozen=True, eq=False, repr=False)
class Job(Value):
    """
    A job that used the GPUs: the control group, else the session, of GPU processes.

    ``ended_age_s``: seconds from the end of its last GPU process, or of its launcher where that came later, to the
    window's end; absent while a GPU process lives. ``launcher``: name of a living launcher (sweep shell, torchrun, ray,
    ...); absent when none lives, and then ``launcher_known`` is true; false where it could not be looked for, absent
    where it was not yet.
    """

    id: str
    ended_age_s: Optional[float] = None
    launcher: Optional[str] = None
    launcher_known: Optional[bool] = None


@dataclass(frozen=True, eq=False, repr=False)
class Disk(Value):
    """
    One local (instance-store) disk. ``use``: "mounted", "unmounted", "member" (of RAID, LVM or a swap), "unknown".
    ``mount``: the one place where all of it is seen; of a member the place where what is stacked on it is mounted.
    ``used_ratio`` and ``written_age_s`` (at least so long since the last write to the device) where they can be read.
    """

    device: str
    use: str
    mount: Optional[str] = None
    size_bytes: Optional[int] = None
    used_ratio: Optional[float] = None
    written_age_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class Person(Value):
    """Somebody who may care about this machine. ``how``: "gpu" (has a GPU process) or "login"; ``idle_s``: since input."""

    user: str
    uid: Optional[int] = None
    how: str = "gpu"
    idle_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class AtWork(Value):
    """
    One session, kernel, editor or job of a person, found by its tree of processes; GPU or not.

    ``kind``: by which door it came ("ssh", "console", "tmux", "screen", "terminal", "kernel", "editor", "cron", "setup", "container",
    "background", "desktop"). ``name``: of its program in the foreground, else of the busiest. ``idle_s``: at the window's end, since
    somebody last typed into its terminal. ``cpu_cores`` and ``io_bytes_per_s`` (read and written by calls) of the tree over the
    time it was looked at. ``busy``: of a kernel, whether it ran a cell at some look, ``busy_s`` for how long by now.
    """

    kind: str
    user: Optional[str] = None
    uid: Optional[int] = None
    name: Optional[str] = None
    idle_s: Optional[float] = None
    cpu_cores: Optional[float] = None
    io_bytes_per_s: Optional[float] = None
    busy: Optional[bool] = None
    busy_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class Presence(Value):
    """
    Who works here. ``at_work``: what shows the most work first. ``unread``: what could not be seen, in words for people;
    as long as there is such, "nobody works" is not known.
    """

    at_work: Tuple[AtWork, ...] = ()
    unread: Tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Links(Value):
    """
    Established connections of the processes that hold GPUs (with who started them and whom they started) to other machines.

    ``addresses``: the machine's own, ``peers``: theirs; as text, IPv4 as such. ``whole``: all of those processes could be
    read, and nothing was left out. ``ranks`` (of these processes), ``world_size`` and ``master`` (an address) as the job's own
    environment names them. Of the environment nothing else is sent.
    """

    whole: bool
    addresses: Tuple[str, ...] = ()
    peers: Tuple[str, ...] = ()
    ranks: Tuple[int, ...] = ()
    world_size: Optional[int] = None
    master: Optional[str] = None


@dataclass(frozen=True, eq=False, repr=False)
class Lost(Value):
    """
    GPU work that the end of an earlier boot interrupted, told at the next one; the reaper knows which stop was its own.
    ``peak_ratio``: the highest peak of a GPU in the last window of that boot.
    """

    boot_id: str
    because: str
    peak_ratio: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class Hooks(Value):
    """The pre-stop hook: installed or not, and the outcome of its last run ("ok", "not-now", "failed", "timeout")."""

    installed: bool
    outcome: Optional[str] = None


@dataclass(frozen=True, eq=False, repr=False)
class Keep(Value):
    """A person on the host asks to keep the machine for so long."""

    for_s: float
    reason: Optional[str] = None
    who: Optional[str] = None


@dataclass(frozen=True, eq=False, repr=False)
class Host(Value):
    """
    The host over the report window. ``cpu_ratio`` is of all cores; disk and net
    are bytes per second, reads and writes together. ``orchestrators``: names of
    the living ones (slurmd, kubelet, raylet, nomad); ``[]`` is "looked, none".
    """

    cpu_ratio: Optional[float] = None
    cpus: Optional[int] = None
    mem_used_ratio: Optional[float] = None
    disk_bytes_per_s: Optional[float] = None
    net_bytes_per_s: Optional[float] = None
    orchestrators: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True, eq=False, repr=False)
class Report(Value):
    """
    One report window of one host. ``presence`` None: an agent that does not look; ``links`` None: no process holds a GPU, or so.

    ``seq`` is the boot clock's milliseconds at the window's end, so it grows across
    restarts of the agent; duplicates are found by (resource, boot_id, seq).
    ``age_s`` is the boot clock from the window's end to sending, so a span's place
    in time is *receipt minus age*; ``sent_at`` (RFC 3339) is for display only.
    """

    resource: str
    boot_id: str
    up_s: float
    seq: int
    window_s: float
    age_s: float
    sampler: Sampler
    v: int = VERSION
    sent_at: Optional[str] = None
    expected_gpus: Optional[int] = None
    totals: Optional[Totals] = None
    gpus: Tuple[Gpu, ...] = ()
    jobs: Optional[Tuple[Job, ...]] = None
    loader: Optional[Tuple[Loader, ...]] = None
    disks: Optional[Tuple[Disk, ...]] = None
    people: Optional[Tuple[Person, ...]] = None
    lost: Optional[Lost] = None
    hooks: Optional[Hooks] = None
    keep: Optional[Keep] = None
    host: Optional[Host] = None
    presence: Optional[Presence] = None
    links: Optional[Links] = None


@dataclass(frozen=True, eq=False, repr=False)
class Upcoming(Value):
    """What will happen to this machine and when (RFC 3339). Information, never a command."""

    action: str
    due_at: Optional[str]
    because: str


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Value):
    """What the reaper answers with 202. ``snoozed_until`` is RFC 3339."""

    seq: int
    upcoming: Optional[Upcoming] = None
    snoozed_until: Optional[str] = None


# --- encode -----------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(item) for name, item in vars(value).items() if item is not None}
    return value


def as_dict(message: Union[Report, Answer]) -> Dict[str, Any]:
    """What `encode` writes, as plain dictionaries and lists."""
    plain: Dict[str, Any] = _plain(message)
    return plain


def encode(message: Union[Report, Answer]) -> bytes:
    """Compact JSON; what is not known is left out. Raises ValueError on NaN or infinity, which no figure may be."""
    return json.dumps(_plain(message), separators=(",", ":"), allow_nan=False).encode()


# --- decode -----------------------------------------------------------------------------------------------------------

_RATIO = number(0.0, 1.0)
_BYTES = whole(0, _MOST_COUNT)
_RATE = number(0.0, 1e13)
_SECONDS = number(0.0, _FOREVER_S)
_COUNT = whole(0, 1_000_000)

_SAMPLER = parts(
    Sampler, {"state": words, "because": words, "beat_s": number(0.01, 600.0), "version": words}, ("state",)
)
_TOTALS = parts(
    Totals, {"gpu_energy_j": number(0.0, 1e15), "cpu_s": number(0.0, 1e13), "disk_bytes": _BYTES, "net_bytes": _BYTES}, ()
)
_HOLDER = parts(
    Holder, {"pid": whole(0, 2**32), "name": words, "user": words, "mem_bytes": _BYTES, "since_s": _SECONDS}, ("pid",)
)
_SLICE = parts(Slice, {"uuid": words, "mem_used_bytes": _BYTES, "mem_total_bytes": _BYTES, "processes": _COUNT}, ("uuid",))
_GPU = parts(
    Gpu,
    {
        "uuid": words, "model": words, "peak_ratio": _RATIO, "mean_ratio": _RATIO, "covered_s": number(0.0, 2 * _MOST_WINDOW_S),
        "samples": _COUNT, "mem_used_bytes": _BYTES, "mem_total_bytes": _BYTES, "power_w": number(0.0, 1e5),
        "energy_j": number(0.0, 1e15), "processes": _COUNT, "trouble": words, "holders": list_of(_HOLDER),
        "slices": list_of(_SLICE),
    },
    ("uuid",),
)  # fmt: skip
_LOADER = parts(
    Loader,
    {
        "id": words, "wait_ratio": _RATIO, "blocked_ratio": _RATIO, "read_bytes": _BYTES, "cpu_cores": number(0.0, 1e5), "read_calls": _BYTES,
        "called_bytes": _BYTES, "write_bytes": _BYTES, "worker_cpu_cores": number(0.0, 1e5), "delayed_ratio": _RATIO, "io_pressure_ratio": _RATIO,
        "host_io_pressure_ratio": _RATIO, "host_received_bytes_per_s": _RATE, "exact_wait_ratio": _RATIO, "exact_s": number(0.0, 2 * _MOST_WINDOW_S),
        "batches": _BYTES, "off_gpu": flag,
    },
    ("id",),
)  # fmt: skip
_JOB = parts(Job, {"id": words, "ended_age_s": _SECONDS, "launcher": words, "launcher_known": flag}, ("id",))
_DISK = parts(
    Disk,
    {"device": words, "use": words, "mount": words, "size_bytes": _BYTES, "used_ratio": _RATIO, "written_age_s": _SECONDS},
    ("device", "use"),
)
_PERSON = parts(Person, {"user": words, "uid": whole(0, 2**32 - 1), "how": words, "idle_s": _SECONDS}, ("user",))
_AT_WORK = parts(
    AtWork,
    {
        "kind": words, "user": words, "uid": whole(0, 2**32 - 1), "name": words, "idle_s": _SECONDS, "cpu_cores": number(0.0, 1e5),
        "io_bytes_per_s": _RATE, "busy": flag, "busy_s": _SECONDS,
    },
    ("kind",),
)  # fmt: skip
_PRESENCE = parts(Presence, {"at_work": list_of(_AT_WORK), "unread": list_of(words)}, ())
_LINKS = parts(
    Links,
    {
        "whole": flag, "addresses": list_of(address), "peers": list_of(address), "ranks": list_of(_COUNT), "world_size": _COUNT,
        "master": address,
    },
    ("whole",),
)  # fmt: skip
_LOST = parts(Lost, {"boot_id": words, "because": words, "peak_ratio": _RATIO}, ("boot_id", "because"))
_HOOKS = parts(Hooks, {"installed": flag, "outcome": words}, ("installed",))
_KEEP = parts(Keep, {"for_s": number(1.0, _FOREVER_S), "reason": words, "who": words}, ("for_s",))
_HOST = parts(
    Host,
    {
        "cpu_ratio": _RATIO, "cpus": whole(1, 65536), "mem_used_ratio": _RATIO, "disk_bytes_per_s": _RATE,
        "net_bytes_per_s": _RATE, "orchestrators": list_of(words),
    },
    (),
)  # fmt: skip
_REPORT = parts(
    Report,
    {
        "v": whole(1, 2**31), "resource": resource, "boot_id": words, "up_s": _SECONDS, "seq": whole(0, _MOST_COUNT),
        "window_s": number(0.1, _MOST_WINDOW_S), "age_s": _SECONDS, "sampler": _SAMPLER, "sent_at": words,
        "expected_gpus": whole(0, 1024), "totals": _TOTALS, "gpus": list_of(_GPU), "jobs": list_of(_JOB),
        "loader": list_of(_LOADER), "disks": list_of(_DISK), "people": list_of(_PERSON), "lost": _LOST, "hooks": _HOOKS, "keep": _KEEP, "host": _HOST,
        "presence": _PRESENCE, "links": _LINKS,
    },
    ("v", "resource", "boot_id", "up_s", "seq", "window_s", "age_s", "sampler"),
)  # fmt: skip
_ANSWER = parts(
    Answer,
    {
        "seq": whole(0, _MOST_COUNT),
        "upcoming": parts(Upcoming, {"action": words, "due_at": words, "because": lambda v, p: str(v)[:4096]}, ("action", "because")),
        "snoozed_until": words,
    },
    ("seq",),
)  # fmt: skip


def _agree(report: Report) -> None:
    """Refuse figures that contradict each other: taking either half could turn 'not known' into 'idle'."""
    seen: Dict[str, int] = {}
    for i, gpu in enumerate(report.gpus):
        path = "gpus[%d]" % i
        if gpu.uuid in seen:
            raise _Bad(path + ".uuid", "is the same as gpus[%d].uuid" % seen[gpu.uuid])
        seen[gpu.uuid] = i
        if gpu.peak_ratio is not None and not gpu.samples:
            raise _Bad(path + ".peak_ratio", "is given without samples", "a peak needs at least one good sample")
        if gpu.peak_ratio is not None and gpu.covered_s is None:
            raise _Bad(path + ".covered_s", "is missing beside a peak", "a peak needs the time it covers")
        if gpu.peak_ratio is not None and gpu.mean_ratio is not None and gpu.mean_ratio > gpu.peak_ratio + 1e-6:
            raise _Bad(path + ".mean_ratio", "is above the peak")
        if gpu.mem_used_bytes is not None and gpu.mem_total_bytes is not None and gpu.mem_used_bytes > gpu.mem_total_bytes:
            raise _Bad(path + ".mem_used_bytes", "is above mem_total_bytes")


def decode(body: bytes) -> Report:
    """
    Read a report. Raises ReportError naming the sender (as far as it can be read), the
    field and the remedy; UnknownVersion when the major version is newer than ours.
    """
    resource = "?"
    try:
        document = load(body)
        if isinstance(document, dict):
            claimed = document.get("resource")
            if isinstance(claimed, str) and is_resource_id(claimed):
                resource = claimed
            version = document.get("v")
            if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
                raise UnknownVersion("v", "is %s, newer than %d" % (_brief(version), VERSION), resource, "upgrade the reaper before its agents")
        report: Report = _REPORT(document, "")
        _agree(report)
    except _Bad as bad:
        raise ReportError(bad.path, bad.problem, resource, bad.remedy) from bad
    return report


def decode_answer(body: bytes) -> Answer:
    """Read the reaper's answer. Raises ReportError when it is not one."""
    try:
        answer: Answer = _ANSWER(load(body), "")
    except _Bad as bad:
        raise ReportError(bad.path, bad.problem, "the reaper", bad.remedy) from bad
    return answer
