"""
What a machine truly does, second by second: the only thing the judges believe.

A life is a stream of doings with lengths. The track lays them on the time line as time comes by; a machine that is
turned off does nothing, and its life waits for whoever starts it again.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1024 * 1024

GPU_AT_MOST, CPU_BELOW, RATE_BELOW, WAIT_BELOW = 0.05, 0.20, 5.0 * MIB, 0.30
"""The limits of every simulated policy. Doings keep well clear of them on either side, so that what is work is no matter of taste."""

IDLE_WATTS, BUSY_WATTS = 50.0, 300.0


@dataclass(frozen=True, slots=True)
class Doing:
    """
    ``gpu`` 0..1 of the ``loaded`` GPUs (None: all), the others stand still. ``disk``, ``net`` bytes a second. ``wait`` 0..1
    of the time for data; ``cores`` of the process that holds a GPU. ``held``: a process is on the GPUs. ``launcher``: what
    lives and may start the next job.
    """

    name: str
    gpu: float = 0.0
    loaded: int | None = None
    cpu: float = 0.02
    disk: float = 0.0
    net: float = 0.0
    wait: float = 0.0
    cores: float = 0.0
    held: bool = False
    job: str | None = None
    launcher: str | None = None

    @property
    def work(self) -> bool:
        return (
            self.gpu > GPU_AT_MOST or self.cpu >= CPU_BELOW or self.disk >= RATE_BELOW or self.net >= RATE_BELOW
            or (self.held and (self.wait >= WAIT_BELOW or self.cores >= CPU_BELOW))
        )  # fmt: skip


OFF = Doing("off", cpu=0.0)
BOOTING = Doing("booting", cpu=0.6, disk=60.0 * MIB)

Life = Iterator[tuple[float, Doing]]


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What a perfect sampler saw in one window; host figures are of its busiest minute. ``held``: at any time in it. ``job``, ``launcher`` and
    ``ended_age`` (of the newest job, since its boot) are as at the end.
    """

    peak: tuple[float, ...]
    mean: tuple[float, ...]
    cpu: float
    disk: float
    net: float
    wait: float
    cores: float
    held: bool
    job: str | None
    launcher: str | None
    ended_age: float | None


class Track:
    """Times are seconds of the simulation. ``gpus``: how many the machine has."""

    def __init__(self, life: Life, gpus: int, at: float = 0.0) -> None:
        self.gpus = gpus
        self._life = life
        self._ahead: list[tuple[float, Doing]] = []  # what comes next, before the life is asked again
        self._starts: list[float] = []
        self._doings: list[Doing] = []
        self._worked_until: list[float] = []  # the end of the last work before each start
        self._held_until: list[float] = []
        self._job_until: list[tuple[str, float] | None] = []
        self._sums: list[tuple[float, ...]] = []  # cpu seconds of one core, disk, net, then joules of each GPU
        self._known = at
        self.off = False
        self.booted_at = self.ready_at = at

    # --- going on ----------------------------------------------------------------------------------------------------

    def reach(self, t: float) -> None:
        """Know what is done up to ``t``."""
        while self._known <= t:
            if self.off:
                self._known = t + 1.0
                return
            length, doing = self._ahead.pop(0) if self._ahead else next(self._life)
            self._append(self._known, doing)
            self._known += length

    def turn_off(self, t: float) -> float:
        """The machine goes down at ``t``. Answers when its people would have begun to work on it again."""
        self.reach(t)
        rest = [(self._known - t, self._doings[-1]), *self._ahead]
        doing = self.at(t)
        while not any(d.work for _, d in rest) and len(rest) < 400:
            rest.append(next(self._life))
        gap, ahead = 0.0, list(rest)
        if not doing.work:
            while ahead and not ahead[0][1].work:
                gap += ahead.pop(0)[0]
        self._ahead = ahead
        while self._starts and self._starts[-1] > t:
            self._drop()
        self._known = t
        self._append(t, OFF)
        self.off, self._known = True, t + 1e-3
        return t + gap

    def turn_on(self, t: float, booting: float) -> None:
        self.off = False
        self.booted_at = self._known = t
        self._append(t, BOOTING)
        self._known = self.ready_at = t + booting

    def insert(self, t: float, doings: list[tuple[float, Doing]]) -> None:
        """From ``t`` on these come first, and then what would have come."""
        self.reach(t)
        if self.off:
            return
        while len(self._starts) > 1 and self._starts[-1] > t:
            self._ahead.insert(0, (self._known - self._starts[-1], self._doings[-1]))
            self._known = self._starts[-1]
            self._drop()
        if self._known > t:
            self._ahead.insert(0, (self._known - t, self._doings[-1]))
            self._known = t
        self._ahead[:0] = doings

    def _append(self, start: float, doing: Doing) -> None:
        if not self._starts:
            self._worked_until.append(start)
            self._held_until.append(start)
            self._job_until.append(None)
            self._sums.append((0.0,) * (3 + self.gpus))
        else:
            last = self._doings[-1]
            self._worked_until.append(start if last.work else self._worked_until[-1])
            self._held_until.append(start if last.held else self._held_until[-1])
            lives = last.job or (self._job_until[-1][0] if last.launcher and self._job_until[-1] else None)
            self._job_until.append((lives, start) if lives else self._job_until[-1])
            self._sums.append(self._sum_at(len(self._starts) - 1, start))
        if doing is BOOTING:
            self._job_until[-1] = None
        self._starts.append(start)
        self._doings.append(doing)

    def _drop(self) -> None:
        for column in (self._starts, self._doings, self._worked_until, self._held_until, self._job_until, self._sums):
            column.pop()  # type: ignore[attr-defined]

    def _sum_at(self, i: int, t: float) -> tuple[float, ...]:
        doing, span, sums = self._doings[i], t - self._starts[i], self._sums[i]
        if doing is OFF:
            return sums
        loaded = self.gpus if doing.loaded is None else doing.loaded
        joules = (IDLE_WATTS + (BUSY_WATTS - IDLE_WATTS) * doing.gpu if g < loaded else IDLE_WATTS for g in range(self.gpus))
        rates = (doing.cpu, doing.disk, doing.net, *joules)
        return tuple(was + rate * span for was, rate in zip(sums, rates, strict=True))

    # --- looking -----------------------------------------------------------------------------------------------------

    def _index(self, t: float) -> int:
        self.reach(t)
        return max(bisect_right(self._starts, t) - 1, 0)

    def at(self, t: float) -> Doing:
        return self._doings[self._index(t)]

    def since(self, t: float) -> float:
        """When what is done at ``t`` began."""
        return self._starts[self._index(t)]

    def work_began(self, t: float) -> float:
        """The start of the unbroken work at ``t``."""
        i = self._index(t)
        while i > 0 and self._doings[i - 1].work:
            i -= 1
        return self._starts[i]

    def worked_until(self, t: float) -> float:
        """The end of the last work before ``t``; ``t`` itself while it works."""
        i = self._index(t)
        return t if self._doings[i].work else self._worked_until[i]

    def held_until(self, t: float) -> float:
        i = self._index(t)
        return t if self._doings[i].held else self._held_until[i]

    def quiet_until(self, t: float) -> float:
        """When work begins after ``t``; ``t`` itself while it works. Looks ahead, which only planners may."""
        doing = self.at(t)
        if doing.work or self.off:
            return t
        i, end = self._index(t), t
        for length, doing in [*((self._ends(j) - max(self._starts[j], t), self._doings[j]) for j in range(i, len(self._starts))), *self._ahead]:
            if doing.work:
                return end
            end += length
        for _ in range(50):
            length, doing = next(self._life)
            self._ahead.append((length, doing))
            if doing.work:
                return end
            end += length
        return end

    def _ends(self, i: int) -> float:
        return self._starts[i + 1] if i + 1 < len(self._starts) else self._known

    def worked_in(self, a: float, b: float) -> list[tuple[float, float]]:
        """The pieces of [a, b) in which it worked."""
        found = []
        i = self._index(a)
        self.reach(b)
        while i < len(self._starts) and self._starts[i] < b:
            if self._doings[i].work:
                found.append((max(a, self._starts[i]), min(b, self._ends(i))))
            i += 1
        return [(x, y) for x, y in found if y > x]

    def counters(self, t: float) -> tuple[float, ...]:
        return self._sum_at(self._index(t), t)

    def seen(self, a: float, b: float) -> Seen:
        n, span = self.gpus, max(b - a, 1e-3)
        peak, mean = [0.0] * n, [0.0] * n
        most, held = [0.0] * 5, False
        i = self._index(a)
        self.reach(b)
        minute = min(60.0, span)
        while i < len(self._starts) and self._starts[i] < b:
            doing, part = self._doings[i], min(b, self._ends(i)) - max(a, self._starts[i])
            for g in range(n if doing.loaded is None else doing.loaded):
                peak[g] = max(peak[g], doing.gpu)
                mean[g] += doing.gpu * part / span
            share = min(1.0, part / minute)
            held = held or doing.held
            most = [max(m, v * share) for m, v in zip(most, (doing.cpu, doing.disk, doing.net, doing.wait, doing.cores), strict=True)]
            i += 1
        last = self._index(b - 1e-6)
        doing, before = self._doings[last], self._job_until[last]
        job, age = doing.job, None
        if job is None and before is not None:
            job, age = before[0], b - before[1] if doing.launcher is None else b - self._starts[last]
        return Seen(tuple(peak), tuple(mean), *most, held, job, doing.launcher, age)
