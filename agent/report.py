"""
The wire: what an agent sends to the reaper, once per report window.

Both sides import this one file, and nothing else of the other side. Stdlib only,
Python 3.9 and later. Agents in the field are older than daemons, so `decode` accepts
every minor addition of every version since the first, ignores fields it does not
know, and refuses an unknown *major* version with an answer that says so. Golden
files in tests/wire/ are kept for ever.

Units are in the names: ``_ratio`` is a share 0..1, ``_bytes`` bytes, ``_w`` watts,
``_j`` joules, ``_s`` seconds. ``None`` (absent on the wire) means *not known*, never
zero: a figure that failed, is unsupported, stale or out of range is left out.
"""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

VERSION = 1

# Bounds of one report. A host with 16 GPUs and as many jobs needs under 8 KB.
MAX_BODY_BYTES = 64 * 1024
MAX_ITEMS = 64
MAX_TEXT = 256
# Of Google's projects, those of a domain have one more colon in them ("example.com:project"), and no other account has.
_RESOURCE_ID = re.compile(
    r"^(gcp:[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+|[a-z][a-z0-9-]{0,15})(:[A-Za-z0-9._-]{1,128}){2}:instance:[A-Za-z0-9._-]{1,128}$"
)
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

_Reader = Callable[[Any, str], Any]


class _Bad(Exception):
    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(path, problem)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 32 else text[:32] + "..."


def _number(low: float, high: float) -> _Reader:
    def read(value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _Bad(path, "must be a number, not %s" % _kind(value))
        if isinstance(value, float) and not math.isfinite(value):  # a huge whole number has no float to ask
            raise _Bad(path, "must be finite", "leave out a figure that is not known")
        if not low <= value <= high:
            raise _Bad(path, "is %s, outside %g..%g" % (_brief(value), low, high), "leave out a figure that is out of range")
        return float(value)

    return read


def _whole(low: int, high: int) -> _Reader:
    def read(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _Bad(path, "must be a whole number, not %s" % _kind(value))
        if not low <= value <= high:
            raise _Bad(path, "is %s, outside %d..%d" % (_brief(value), low, high), "leave out a figure that is out of range")
        return value

    return read


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _Bad(path, "must be text, not %s" % _kind(value))
    if not value or len(value) > MAX_TEXT:
        raise _Bad(path, "must have 1 to %d characters, has %d" % (MAX_TEXT, len(value)))
    if not value.isprintable():
        raise _Bad(path, "holds a character that cannot be printed")
    return value


def is_resource_id(text: str) -> bool:
    """Whether this is the id of an instance, such as aws:123456789012:eu-west-1:instance:i-0abc."""
    return len(text) <= MAX_TEXT and _RESOURCE_ID.fullmatch(text) is not None


def _resource(value: Any, path: str) -> str:
    text = _text(value, path)
    if not is_resource_id(text):
        raise _Bad(path, "is not a resource id", "write it as aws:123456789012:eu-west-1:instance:i-0abc")
    return text


def is_address(text: str) -> bool:
    """Whether this is an IPv4 or IPv6 address as the sockets write it. (The module made for that costs a megabyte.)"""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def _address(value: Any, path: str) -> str:
    text = _text(value, path)
    if not is_address(text):
        raise _Bad(path, "is not an address", "write it as 10.0.0.5 or fd00::5")
    return text


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _Bad(path, "must be true or false, not %s" % _kind(value))
    return value


def _list_of(read: _Reader) -> _Reader:
    def read_list(value: Any, path: str) -> Tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Bad(path, "must be a list, not %s" % _kind(value))
        if len(value) > MAX_ITEMS:
            raise _Bad(path, "has %d items, more than %d" % (len(value), MAX_ITEMS))
        return tuple(read(item, "%s[%d]" % (path, i)) for i, item in enumerate(value))

    return read_list


def _object(make: Callable[..., Any], readers: Mapping[str, _Reader], required: Tuple[str, ...]) -> _Reader:
    # What may be absent and has no default of its own.
    parts = fields(make)  # type: ignore[arg-type]  # each is one of our dataclasses
    empty = {f.name: None for f in parts if f.name in readers and f.name not in required and f.default is MISSING and f.default_factory is MISSING}

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _Bad(path or "body", "must be an object, not %s" % _kind(value))
        prefix = path + "." if path else ""
        for name in required:
            if value.get(name) is None:
                raise _Bad(prefix + name, "is missing")
        # Unknown names are ignored: a newer agent may say more than we understand.
        known = {n: r(value[n], prefix + n) for n, r in readers.items() if value.get(n) is not None}
        return make(**{**empty, **known})

    return read


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true or false", str: "text", list: "a list", dict: "an object"}.get(type(value), "a number")


_RATIO = _number(0.0, 1.0)
_BYTES = _whole(0, _MOST_COUNT)
_RATE = _number(0.0, 1e13)
_SECONDS = _number(0.0, _FOREVER_S)
_COUNT = _whole(0, 1_000_000)

_SAMPLER = _object(
    Sampler, {"state": _text, "because": _text, "beat_s": _number(0.01, 600.0), "version": _text}, ("state",)
)
_TOTALS = _object(
    Totals, {"gpu_energy_j": _number(0.0, 1e15), "cpu_s": _number(0.0, 1e13), "disk_bytes": _BYTES, "net_bytes": _BYTES}, ()
)
_HOLDER = _object(
    Holder, {"pid": _whole(0, 2**32), "name": _text, "user": _text, "mem_bytes": _BYTES, "since_s": _SECONDS}, ("pid",)
)
_SLICE = _object(Slice, {"uuid": _text, "mem_used_bytes": _BYTES, "mem_total_bytes": _BYTES, "processes": _COUNT}, ("uuid",))
_GPU = _object(
    Gpu,
    {
        "uuid": _text, "model": _text, "peak_ratio": _RATIO, "mean_ratio": _RATIO, "covered_s": _number(0.0, 2 * _MOST_WINDOW_S),
        "samples": _COUNT, "mem_used_bytes": _BYTES, "mem_total_bytes": _BYTES, "power_w": _number(0.0, 1e5),
        "energy_j": _number(0.0, 1e15), "processes": _COUNT, "trouble": _text, "holders": _list_of(_HOLDER),
        "slices": _list_of(_SLICE),
    },
    ("uuid",),
)  # fmt: skip
_LOADER = _object(
    Loader,
    {
        "id": _text, "wait_ratio": _RATIO, "blocked_ratio": _RATIO, "read_bytes": _BYTES, "cpu_cores": _number(0.0, 1e5), "read_calls": _BYTES,
        "called_bytes": _BYTES, "write_bytes": _BYTES, "worker_cpu_cores": _number(0.0, 1e5), "delayed_ratio": _RATIO, "io_pressure_ratio": _RATIO,
        "host_io_pressure_ratio": _RATIO, "host_received_bytes_per_s": _RATE, "exact_wait_ratio": _RATIO, "exact_s": _number(0.0, 2 * _MOST_WINDOW_S),
        "batches": _BYTES, "off_gpu": _flag,
    },
    ("id",),
)  # fmt: skip
_JOB = _object(Job, {"id": _text, "ended_age_s": _SECONDS, "launcher": _text, "launcher_known": _flag}, ("id",))
_DISK = _object(
    Disk,
    {"device": _text, "use": _text, "mount": _text, "size_bytes": _BYTES, "used_ratio": _RATIO, "written_age_s": _SECONDS},
    ("device", "use"),
)
_PERSON = _object(Person, {"user": _text, "uid": _whole(0, 2**32 - 1), "how": _text, "idle_s": _SECONDS}, ("user",))
_AT_WORK = _object(
    AtWork,
    {
        "kind": _text, "user": _text, "uid": _whole(0, 2**32 - 1), "name": _text, "idle_s": _SECONDS, "cpu_cores": _number(0.0, 1e5),
        "io_bytes_per_s": _RATE, "busy": _flag, "busy_s": _SECONDS,
    },
    ("kind",),
)  # fmt: skip
_PRESENCE = _object(Presence, {"at_work": _list_of(_AT_WORK), "unread": _list_of(_text)}, ())
_LINKS = _object(
    Links,
    {
        "whole": _flag, "addresses": _list_of(_address), "peers": _list_of(_address), "ranks": _list_of(_COUNT), "world_size": _COUNT,
        "master": _address,
    },
    ("whole",),
)  # fmt: skip
_LOST = _object(Lost, {"boot_id": _text, "because": _text, "peak_ratio": _RATIO}, ("boot_id", "because"))
_HOOKS = _object(Hooks, {"installed": _flag, "outcome": _text}, ("installed",))
_KEEP = _object(Keep, {"for_s": _number(1.0, _FOREVER_S), "reason": _text, "who": _text}, ("for_s",))
_HOST = _object(
    Host,
    {
        "cpu_ratio": _RATIO, "cpus": _whole(1, 65536), "mem_used_ratio": _RATIO, "disk_bytes_per_s": _RATE,
        "net_bytes_per_s": _RATE, "orchestrators": _list_of(_text),
    },
    (),
)  # fmt: skip
_REPORT = _object(
    Report,
    {
        "v": _whole(1, 2**31), "resource": _resource, "boot_id": _text, "up_s": _SECONDS, "seq": _whole(0, _MOST_COUNT),
        "window_s": _number(0.1, _MOST_WINDOW_S), "age_s": _SECONDS, "sampler": _SAMPLER, "sent_at": _text,
        "expected_gpus": _whole(0, 1024), "totals": _TOTALS, "gpus": _list_of(_GPU), "jobs": _list_of(_JOB),
        "loader": _list_of(_LOADER), "disks": _list_of(_DISK), "people": _list_of(_PERSON), "lost": _LOST, "hooks": _HOOKS, "keep": _KEEP, "host": _HOST,
        "presence": _PRESENCE, "links": _LINKS,
    },
    ("v", "resource", "boot_id", "up_s", "seq", "window_s", "age_s", "sampler"),
)  # fmt: skip
_ANSWER = _object(
    Answer,
    {
        "seq": _whole(0, _MOST_COUNT),
        "upcoming": _object(Upcoming, {"action": _text, "due_at": _text, "because": lambda v, p: str(v)[:4096]}, ("action", "because")),
        "snoozed_until": _text,
    },
    ("seq",),
)  # fmt: skip


def _no_duplicates(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Bad(name[:64], "appears twice", "send each field once")
        found[name] = value
    return found


def _not_a_number(text: str) -> Any:
    raise _Bad("body", "holds %s" % text, "leave out a figure that is not known")


def _load(body: bytes) -> Any:
    if len(body) > MAX_BODY_BYTES:
        raise _Bad("body", "has %d bytes, more than %d" % (len(body), MAX_BODY_BYTES), "send one report per request")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_not_a_number, object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise _Bad("body", "is not UTF-8 (byte %d)" % error.start) from error
    except RecursionError as error:
        raise _Bad("body", "is nested too deeply") from error
    except ValueError as error:
        raise _Bad("body", "is not JSON (%s)" % error, "was it cut off on the way?") from error


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
        document = _load(body)
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
        answer: Answer = _ANSWER(_load(body), "")
    except _Bad as bad:
        raise ReportError(bad.path, bad.problem, "the reaper", bad.remedy) from bad
    return answer
