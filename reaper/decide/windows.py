"""
The idle clock: since when has a machine been quiet, for any limits, without reading history again.

A fold of report windows. Per device and signal it keeps the *staircase of suffix maxima*:
the windows whose peak no later window equals or exceeds. The last step above a limit is
the last time the signal was above it, so "since when at or below x?" is a bisection, an
update is amortised O(1), and there are at most as many steps as distinct values. Beside it
runs a sum of seconds that were *not* covered, kept as steps of a sixtieth of a window and
always read to the larger side.

Positions are seconds of the agent's boot clock; the place in our time is receipt minus age.
A hole (over three report periods, a new boot, a step of either clock) begins a new stretch.
An unverified window can push a peak up and covers nothing.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from reaper.decide import at_work
from reaper.model.signal import GpuWindow, Limits, Observation, Quiet, Signal

PERIOD_S = 60.0
"""The report period of the wire, in seconds. A longer window an agent claims does not stretch what counts as fresh."""

HOLE_PERIODS = 3
HORIZON = timedelta(hours=72)
"""How far back uncovered time is remembered: the longest term (48 h) and a day."""

_HORIZON_S = HORIZON.total_seconds()

_MOST_FORGOTTEN = 256
"""Steps of lost time that are no longer needed before they are dropped: in lumps, so that it costs nothing per window."""

_MIB = 1024 * 1024


class Fold(StrEnum):
    ADDED = "added"
    RESTARTED = "restarted"  # added, and a new stretch began with it
    LATE = "late"  # older than the newest: not added; fold this machine's kept windows again
    DUPLICATE = "duplicate"


def period_of(window_s: float) -> timedelta:
    """A report period from a window's length: at most a minute, whatever the agent says."""
    return timedelta(seconds=min(PERIOD_S, max(window_s, 0.1)))


class Track:
    """
    One signal of one device: the staircase of its peaks, and the seconds it did not cover. ``born``: when it was first
    named; all time before is lost.
    """

    __slots__ = ("_born", "_ends", "_lost_ends", "_lost_sums", "falls", "lost")

    def __init__(self, born: float = -math.inf) -> None:
        self._born = born
        self._ends = array("d")
        self.falls = array("d")  # the peaks, negated: they fall towards the newest, and bisect wants what rises
        self._lost_ends = array("d")
        self._lost_sums = array("d")
        self.lost = 0.0

    @property
    def born(self) -> float:
        return self._born

    def push(self, end: float, peak: float) -> None:
        ends, falls = self._ends, self.falls
        while falls and falls[-1] >= -peak:
            falls.pop()
            ends.pop()
        ends.append(end)
        falls.append(-peak)

    def lose(self, end: float, seconds: float, quantum: float) -> None:
        """Count uncovered seconds up to ``end``."""
        if seconds <= 0.0:
            return
        self.lost += seconds
        if self.lost - (self._lost_sums[-1] if self._lost_sums else 0.0) >= quantum:
            self._lost_ends.append(end)
            self._lost_sums.append(self.lost)

    def last_above(self, limit: float) -> tuple[float, float] | None:
        """(end, peak) of the newest window above ``limit``; None: never in this stretch."""
        falls = self.falls
        if not falls or falls[0] >= -limit:  # the highest of all is not above it
            return None
        count = bisect_left(falls, -limit)
        return self._ends[count - 1], -falls[count - 1]

    def lost_since(self, moment: float) -> float:
        """Uncovered seconds before its birth and in windows that ended after ``moment``; at most a quantum too many, never too few."""
        count = bisect_right(self._lost_ends, moment)
        lost = self.lost - self._lost_sums[count - 1] if count else self.lost
        return lost + self._born - moment if self._born > moment else lost

    def forget(self, before: float) -> None:
        """Drop steps of lost time that no span reaches any more; one is kept as the floor of the sum."""
        if len(self._lost_ends) <= _MOST_FORGOTTEN:
            return
        keep = bisect_right(self._lost_ends, before) - 1
        if keep > _MOST_FORGOTTEN:
            del self._lost_ends[:keep]
            del self._lost_sums[:keep]

    def __len__(self) -> int:
        return len(self.falls) + len(self._lost_ends)


def _up_to(value: float, step: float) -> float:
    """Rounded up, so that a stored peak never says less than was seen."""
    return round(math.ceil(value / step - 1e-9) * step, 9)


class IdleClock:
    """One machine's clock. Not thread-safe: its owner locks."""

    __slots__ = ("_began", "_boot", "_gpus", "_held_until", "_host", "_newest", "_offset", "_period_s", "_seq", "_until")

    def __init__(self) -> None:
        self._boot: str | None = None
        self._began = 0.0
        self._until: float | None = None  # end of the newest verified window, on the boot clock
        self._newest: Observation | None = None  # the newest verified window
        self._seq = -1
        self._offset = 0.0
        self._period_s = PERIOD_S
        self._held_until = 0.0
        self._gpus: dict[str, Track] = {}
        self._host: dict[Signal, Track] = {}

    @property
    def steps(self) -> int:
        """How many steps it keeps, for those who watch its size."""
        return sum(map(len, self._gpus.values())) + sum(map(len, self._host.values()))

    def add(self, seen: Observation) -> Fold:
        """Fold one window in. Windows of one boot come in order of ``seq``; an older one answers LATE and changes nothing."""
        if seen.boot_id == self._boot:
            if seen.seq == self._seq:
                return Fold.DUPLICATE
            if seen.seq < self._seq:
                return Fold.LATE
        start = seen.up_s - seen.window_s
        restarted = self._opens_hole(seen, start)
        if restarted:
            self._restart(seen, start)
        self._seq = seen.seq
        if seen.verified:
            self._cover(seen, start)
        self._push(seen)
        if seen.verified:
            # The last window before an agent ends is cut short; one short window makes no shorter period.
            before = self._newest.window_s if self._newest is not None else 0.0
            self._period_s = period_of(max(seen.window_s, before)).total_seconds()
            self._until, self._newest = seen.up_s, seen
            self._offset = seen.ended_at.timestamp() - seen.up_s
            for track in (*self._gpus.values(), *self._host.values()):
                track.forget(seen.up_s - _HORIZON_S)
        return Fold.RESTARTED if restarted else Fold.ADDED

    def _opens_hole(self, seen: Observation, start: float) -> bool:
        if seen.boot_id != self._boot or self._until is None:
            return True
        if not seen.verified:
            return False
        last = self._newest.window_s if self._newest is not None else 0.0
        period = period_of(max(last, seen.window_s)).total_seconds()
        if start - self._until > HOLE_PERIODS * period:
            return True
        if self._newest is not None and _swapped(self._newest, seen):
            return True
        # The boot clock and our own must go together: a step of either (or a resume that one of them missed) is a hole.
        step = abs(seen.ended_at.timestamp() - seen.up_s - self._offset)
        return step > max(HOLE_PERIODS * period, 30.0)

    def _restart(self, seen: Observation, start: float) -> None:
        self._boot, self._began, self._until, self._newest = seen.boot_id, start, None, None
        self._gpus, self._host, self._held_until = {}, {}, start

    def _cover(self, seen: Observation, start: float) -> None:
        """Count what this verified window covers, and what the gap before it and its own blind spots lose."""
        before = self._until if self._until is not None else start
        elapsed = max(seen.up_s - before, 0.0)
        quantum = max(seen.window_s, 0.1) / 60.0
        if self._newest is not None and start - before > 0.25 * seen.window_s:
            self._push_gap(self._newest, seen, start, start - before)
        given = {gpu.uuid: gpu for gpu in seen.gpus}
        for uuid in given:
            if uuid not in self._gpus:  # a device that was not there from the start has lost the time before it
                self._gpus[uuid] = Track(born=before)
        for uuid, track in self._gpus.items():
            gpu = given.get(uuid)
            covered = min(gpu.covered_s, seen.window_s) if gpu and gpu.peak is not None and gpu.covered_s is not None else 0.0
            track.lose(seen.up_s, elapsed - covered, quantum)
        uncovered = elapsed - min(seen.window_s, elapsed)
        for signal, known in _host_known(seen).items():
            if signal not in self._host:  # a track is not made for nothing, since this is asked of every window of the fleet
                self._host[signal] = Track(born=before)
            self._host[signal].lose(seen.up_s, uncovered if known else elapsed, quantum)

    def _push(self, seen: Observation) -> None:
        for gpu in seen.gpus:
            if gpu.work is not None:
                if gpu.uuid not in self._gpus:  # first named by an unverified voice: it has covered nothing so far
                    self._gpus[gpu.uuid] = Track(born=self._until if self._until is not None else self._began)
                self._gpus[gpu.uuid].push(seen.up_s, _up_to(gpu.work, 0.001))
            if gpu.held and _speaks(gpu):
                self._held_until = max(self._held_until, seen.up_s)
        for signal, value in _host_values(seen).items():
            self._of_host(signal).push(seen.up_s, _quantised(signal, value))

    def _of_host(self, signal: Signal) -> Track:
        track = self._host.get(signal)
        if track is None:
            track = self._host[signal] = Track()
        return track

    def _push_gap(self, old: Observation, new: Observation, start: float, gap: float) -> None:
        """What the counters since boot show was done between two windows."""
        window = new.window_s
        for signal, was, now, own, scale in (
            (Signal.CPU, old.totals.cpu_s, new.totals.cpu_s, new.cpu_ratio, float(new.cpus or 0)),
            (Signal.DISK, old.totals.disk_bytes, new.totals.disk_bytes, new.disk_bytes_per_s, 1.0),
            (Signal.NET, old.totals.net_bytes, new.totals.net_bytes, new.net_bytes_per_s, 1.0),
        ):
            if was is None or now is None or own is None or now < was or not scale:
                continue
            rate = ((now - was) / scale - own * window) / gap
            if rate > 0.0:
                self._of_host(signal).push(start, _quantised(signal, rate))
        self._push_gap_energy(old, new, start, gap)

    def _push_gap_energy(self, old: Observation, new: Observation, start: float, gap: float) -> None:
        """A GPU that drew clearly more in the gap than in the windows on both sides of it was working."""
        before = {gpu.uuid: gpu for gpu in old.gpus}
        for gpu in new.gpus:
            was = before.get(gpu.uuid)
            if was is None or was.energy_j is None or gpu.energy_j is None or was.power_w is None or gpu.power_w is None:
                continue
            watts = (gpu.energy_j - was.energy_j - gpu.power_w * new.window_s) / gap
            if watts > 1.25 * max(was.power_w, gpu.power_w) + 10.0:
                self._gpus.setdefault(gpu.uuid, Track()).push(start, 1.0)

    def quiet(self, limits: Limits, spans: tuple[timedelta, ...] = (), *, served: bool = False) -> Quiet | None:
        """
        Its answer up to the newest verified window, for these limits; None: no verified window in this stretch.

        ``served``: leave out the coverage of spans that it was not quiet for, which costs as much as all the rest.
        """
        if self._until is None or self._newest is None:
            return None
        until, newest = self._until, self._newest
        since, last_busy = self._last_busy(limits)
        at: datetime = newest.ended_at
        wanted = [span for span in spans if until - since >= span.total_seconds()] if served else spans

        def moment(up: float) -> datetime:
            return at - timedelta(seconds=until - up)

        return Quiet(
            since=moment(since),
            unheld_since=moment(max(since, self._held_until)),
            until=at,
            began_at=moment(self._began),
            period=timedelta(seconds=self._period_s),
            devices=len({gpu.uuid for gpu in newest.gpus if gpu.peak is not None and gpu.covered_s}),
            covered={span: self._least("gpu ", self._gpus, span) for span in wanted},
            host_covered={span: self._least("", self._host, span) for span in wanted},
            last_busy=last_busy,
        )

    def quiet_gpus(self, limit: float) -> dict[str, datetime] | None:
        """
        Since when each GPU that the newest verified window could read has been at or below ``limit``, by UUID; above it in that
        window: not in it. None: no verified window in this stretch.
        """
        if self._until is None or self._newest is None:
            return None
        found: dict[str, datetime] = {}
        for gpu in self._newest.gpus:
            track = self._gpus.get(gpu.uuid)
            if track is None or gpu.peak is None or not gpu.covered_s:
                continue
            step = track.last_above(limit)
            since = max(step[0] if step is not None else self._began, track.born)
            if since < self._until:
                found[gpu.uuid] = self._newest.ended_at - timedelta(seconds=self._until - since)
        return found

    def _last_busy(self, limits: Limits) -> tuple[float, tuple[Signal, float] | None]:
        """The end of the newest window that was busy by one signal, and that signal's peak; the stretch's begin if none was."""
        since, busy = self._began, None
        quiet = -limits.gpu
        for track in self._gpus.values():
            if track.falls and track.falls[0] < quiet:  # most are not, and this is asked of every GPU of the fleet
                step = track.last_above(limits.gpu)
                if step is not None and step[0] > since:
                    since, busy = step[0], (Signal.GPU, step[1])
        host = _below(limits)
        for signal, track in self._host.items():
            step = track.last_above(host[signal])
            if step is not None and step[0] > since:
                since, busy = step[0], (signal, step[1])
        return since, busy

    def _least(self, kind: str, tracks: Mapping[str, Track] | Mapping[Signal, Track], span: timedelta) -> tuple[float, str]:
        """The share of ``span`` (0..1) that the least covered track covers, and its name; no track covers nothing."""
        if self._until is None or span <= timedelta(0):
            return 0.0, "nothing"
        seconds = span.total_seconds()
        start = max(self._until - seconds, self._began)
        worst, name = -1.0, "nothing"
        for its_name, track in tracks.items():
            lost = track.lost_since(start)
            if lost > worst:
                worst, name = lost, f"{kind}{its_name}"
        if worst < 0.0:
            return 0.0, "nothing"
        missing = max(seconds - (self._until - start), 0.0)
        return max(0.0, 1.0 - (worst + missing) / seconds), name


@lru_cache(maxsize=256)  # a handful of policies, asked for every machine
def _below(limits: Limits) -> dict[Signal, float]:
    """The host's limits, at or above which is busy, as the largest figure that is not."""
    strict = {
        Signal.CPU: limits.cpu,
        Signal.DISK: limits.disk_bytes_per_s,
        Signal.NET: limits.net_bytes_per_s,
        Signal.WAIT: limits.wait,
        Signal.TREE_CPU: limits.cpu,
        Signal.PEOPLE: 1.0,
        Signal.WORK_CPU: limits.cpu,
        Signal.WORK_IO: limits.disk_bytes_per_s,
    }
    return {signal: math.nextafter(limit, -1.0) for signal, limit in strict.items()}


_SMALL, _LARGE = _MIB / 10, 10 * _MIB

_STEPS: dict[Signal, tuple[float, float, float]] = {
    Signal.CPU: (0.01, 1.0, 0.01), Signal.WAIT: (0.01, 1.0, 0.01), Signal.PEOPLE: (0.01, 1.0, 0.01),
    Signal.WORK_CPU: (0.01, 1.0, 0.1), Signal.TREE_CPU: (0.05, 1.0, 0.05),
}  # fmt: skip
"""The step below a value, that value, and the step from it on; of what is not named: bytes per second."""

_BYTES = (_SMALL, _LARGE, _LARGE)


def _quantised(signal: Signal, value: float) -> float:
    fine, upto, coarse = _STEPS.get(signal, _BYTES)
    return _up_to(value, fine if value < upto else coarse)


def _swapped(old: Observation, new: Observation) -> bool:
    """A GPU that is of another type than a window ago, in one boot: another machine speaks, and what it said is not this one's idleness."""
    if [(gpu.uuid, gpu.model) for gpu in old.gpus] == [(gpu.uuid, gpu.model) for gpu in new.gpus]:
        return False
    models = {gpu.uuid: gpu.model for gpu in old.gpus}
    return any(gpu.model != models.get(gpu.uuid, gpu.model) and gpu.model is not None and models[gpu.uuid] is not None for gpu in new.gpus)


def _speaks(gpu: GpuWindow) -> bool:
    """Whether this window could read anything of the GPU. One that could not covers nothing, and tells nothing of who holds it."""
    return gpu.peak is not None or gpu.processes is not None or gpu.mem_used_bytes is not None


def _owned(seen: Observation) -> bool:
    """Whether a process holds a GPU, or that is not known: then its data path has to be readable."""
    return any(gpu.processes is None or gpu.processes > 0 for gpu in seen.gpus)


def _host_known(seen: Observation) -> dict[Signal, bool]:
    """For each of the host's signals, whether this window could read it. Trees count where a process holds a GPU."""
    trees = [tree for tree in seen.loaders or () if not tree.off_gpu]  # of the others nothing else could be read
    if not trees:
        waits = cpus = not _owned(seen)  # owned and no tree: contradictory, so not known
    else:
        listed = all(gpu.processes is not None for gpu in seen.gpus)  # the trees seen may be those of another GPU
        waits = listed and all(tree.wait is not None for tree in trees)
        cpus = listed and all(tree.cpu_cores is not None for tree in trees)
    return {
        Signal.CPU: seen.cpu_ratio is not None,
        Signal.DISK: seen.disk_bytes_per_s is not None,
        Signal.NET: seen.net_bytes_per_s is not None,
        Signal.WAIT: waits,
        Signal.TREE_CPU: cpus,
        **at_work.known(seen),
    }


def _host_values(seen: Observation) -> dict[Signal, float]:
    trees = seen.loaders or ()
    values = {
        Signal.CPU: seen.cpu_ratio,
        Signal.DISK: seen.disk_bytes_per_s,
        Signal.NET: seen.net_bytes_per_s,
        Signal.WAIT: max((waited for tree in trees if (waited := tree.waited) is not None), default=None),
        Signal.TREE_CPU: max((tree.cpu_cores for tree in trees if tree.cpu_cores is not None), default=None),
    }
    return {**at_work.values(seen), **{signal: value for signal, value in values.items() if value is not None}}


def in_order(windows: Iterable[Observation]) -> list[Observation]:
    """
    One machine's kept windows, given in any order, as the clock takes them: inside a boot by ``seq``, several boots by
    when their windows ended, so that a second speaker stands where it spoke.
    """
    boots: dict[str, list[Observation]] = {}
    for seen in windows:
        boots.setdefault(seen.boot_id, []).append(seen)
    placed: list[tuple[datetime, Observation]] = []
    for boot in boots.values():
        boot.sort(key=lambda seen: seen.seq)
        if len(boots) == 1:
            return boot
        latest = boot[0].ended_at
        for seen in boot:
            latest = max(latest, seen.ended_at)  # never back inside a boot, whatever the clocks did
            placed.append((latest, seen))
    placed.sort(key=lambda pair: pair[0])
    return [seen for _, seen in placed]


def fold(windows: Iterable[Observation]) -> IdleClock:
    """A clock from one machine's kept windows, in any order."""
    clock = IdleClock()
    for seen in in_order(windows):
        clock.add(seen)
    return clock
