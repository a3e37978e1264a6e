"""
What people do with GPU machines, as endless streams of doings.

Breaks are drawn with malice: many end just before or after the moment at which the reaper would act, because that is
where work dies.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from tests.simulation.truth import MIB, Doing, Life

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a life knows of its policy, in seconds: enough to come back at the worst moment."""

    idle: float
    held: float
    wait: float
    malice: float = 0.35


IDLE = Doing("idle")
HELD = Doing("held", held=True, cores=0.01)


def a_break(rng: random.Random, due: float, pressure: Pressure, longest: float = 5 * HOUR) -> float:
    """How long nothing is done. ``due``: how long it takes from the end of work until the reaper would act."""
    if rng.random() < pressure.malice:
        return max(20.0, due + rng.uniform(-6 * MINUTE, 5 * MINUTE))
    kind = rng.random()
    if kind < 0.35:
        return rng.uniform(30.0, 8 * MINUTE)
    if kind < 0.6:
        return rng.uniform(0.3, 0.98) * due
    return due + rng.expovariate(1 / (longest / 3))


def explorer(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """A notebook: bursts, thinking, lunch, and a kernel that is left open over night."""
    while True:
        for _ in range(rng.randint(2, 8)):
            util = rng.uniform(0.2, 1.0)
            yield rng.uniform(10.0, 15 * MINUTE), Doing("trying", gpu=util, loaded=rng.randint(1, gpus), cpu=0.1, cores=0.3, held=True)
            yield rng.uniform(20.0, 0.7 * p.idle), HELD
        if rng.random() < 0.3:
            yield rng.uniform(2 * MINUTE, 20 * MINUTE), Doing("cleaning data", cpu=rng.uniform(0.4, 0.9), disk=rng.uniform(20, 90) * MIB)
        if rng.random() < 0.5:
            yield a_break(rng, p.held + p.wait, p), HELD
        else:
            yield a_break(rng, p.idle + p.wait, p), IDLE


def trainer(rng: random.Random, p: Pressure, gpus: int, at_once: int | None = None) -> Life:
    """Jobs with epochs, checkpoints, pauses, and loaders that starve."""
    for n in count(1):
        job = f"train-{n}"
        yield rng.uniform(90.0, 6 * MINUTE), Doing("loading data", net=rng.uniform(30, 200) * MIB, cpu=0.1)
        busy = Doing("training", gpu=rng.uniform(0.5, 1.0), loaded=at_once, cpu=0.15, cores=1.5, held=True, job=job)
        for _ in range(rng.randint(2, 8)):
            yield rng.uniform(3 * MINUTE, 30 * MINUTE), busy
            what = rng.random()
            if what < 0.35:
                yield rng.uniform(100.0, 5 * MINUTE), replace(busy, name="checkpoint", gpu=0.0, cpu=0.05, disk=rng.uniform(50, 300) * MIB, cores=0.1)
            elif what < 0.5:
                yield rng.uniform(3 * MINUTE, 0.8 * p.idle + 4 * MINUTE), replace(busy, name="starved", gpu=0.02, cpu=0.05, cores=0.1, wait=rng.uniform(0.7, 0.95))
            elif what < 0.62:
                yield rng.uniform(2 * MINUTE, 25 * MINUTE), replace(busy, name="evaluating on the CPU", gpu=0.0, cpu=0.5, cores=3.0)
            elif what < 0.8:
                yield min(rng.uniform(1 * MINUTE, 25 * MINUTE), 0.8 * p.held), replace(busy, name="paused", gpu=0.0, cpu=0.03, cores=0.02)
        yield a_break(rng, p.idle + p.wait, p), IDLE


def sweep(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """A launcher and many short trials, with gaps in which no process is on any GPU."""
    for n in count(1):
        launcher = "sweep.sh"
        for trial in range(rng.randint(3, 10)):
            job = f"sweep-{n}-{trial}"
            yield rng.uniform(4 * MINUTE, 35 * MINUTE), Doing("trial", gpu=rng.uniform(0.3, 1.0), loaded=rng.randint(1, gpus), cores=1.0, cpu=0.1, held=True, job=job, launcher=launcher)
            gap = rng.uniform(30.0, min(12 * MINUTE, 0.9 * p.idle)) if rng.random() < 0.75 else rng.uniform(0.2, 0.9) * p.idle
            yield gap, Doing("between trials", cpu=0.03, launcher=launcher)
        yield a_break(rng, p.idle + p.wait, p), IDLE


def evaluator(rng: random.Random, p: Pressure, gpus: int) -> Life:
    for n in count(1):
        yield rng.uniform(5 * MINUTE, 40 * MINUTE), Doing("evaluating", gpu=rng.uniform(0.2, 0.9), cores=0.8, cpu=0.1, held=True, job=f"eval-{n}")
        yield a_break(rng, p.idle + p.wait, p), IDLE


def server(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """A loaded model with rare, short peaks."""
    while True:
        yield rng.uniform(3.0, 30.0), Doing("answering", gpu=rng.uniform(0.1, 0.6), loaded=1, cores=0.4, held=True)
        quiet = rng.uniform(0.02, 0.98) * p.held if rng.random() < 0.85 else a_break(rng, p.held + p.wait, p)
        yield quiet, replace(HELD, name="serving", gpu=rng.choice((0.0, 0.02)))


def keeper(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """Somebody's dead notebook: memory taken for days, then one day somebody is back."""
    while True:
        yield rng.uniform(5 * MINUTE, 30 * MINUTE), Doing("trying", gpu=0.7, cores=0.4, held=True)
        yield a_break(rng, p.held + p.wait, p, longest=18 * HOUR), HELD


def preparer(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """CPU, disk and network for hours, and hardly ever a GPU."""
    while True:
        for _ in range(rng.randint(2, 5)):
            what = rng.randrange(3)
            yield rng.uniform(2 * MINUTE, 30 * MINUTE), Doing(
                "preparing", cpu=0.7 if what == 0 else 0.05, disk=80 * MIB if what == 1 else 0.0, net=80 * MIB if what == 2 else 0.0
            )
            yield rng.uniform(0.5 * MINUTE, 0.8 * p.idle), IDLE
        yield a_break(rng, p.idle + p.wait, p), IDLE


def forgotten(rng: random.Random, p: Pressure, gpus: int) -> Life:
    yield rng.uniform(5 * MINUTE, HOUR), Doing("trying", gpu=0.5, cores=0.4, held=True)
    while True:
        yield a_break(rng, p.idle + p.wait, replace(p, malice=0.2), longest=12 * HOUR), IDLE
        yield rng.uniform(5 * MINUTE, HOUR), Doing("trying", gpu=0.5, cores=0.4, held=True)


def returning(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """Starves for data right when the reaper would act, again and again, on machines that hold their GPUs."""
    for n in count(1):
        job = f"slow-{n}"
        busy = Doing("training", gpu=0.8, cores=1.0, held=True, job=job)
        yield rng.uniform(2 * MINUTE, 10 * MINUTE), busy
        yield p.held + p.wait + rng.uniform(-4 * MINUTE, 3 * MINUTE), replace(busy, name="paused", gpu=0.0, cpu=0.03, cores=0.02)
        yield rng.uniform(3 * MINUTE, 20 * MINUTE), replace(busy, name="starved", gpu=0.02, cpu=0.05, cores=0.1, wait=0.9)


def bare(rng: random.Random, p: Pressure, gpus: int) -> Life:
    """Works on nothing but GPUs: no CPU to speak of, no disk, no network. Whoever cannot see the GPU sees nothing."""
    while True:
        yield rng.uniform(15 * MINUTE, 2 * HOUR), Doing("computing", gpu=rng.uniform(0.4, 1.0), cpu=0.02, cores=0.05, held=True)
        yield a_break(rng, p.held + p.wait, p), HELD


LIVES: dict[str, Callable[[random.Random, Pressure, int], Life]] = {
    "explorer": explorer, "trainer": trainer, "sweep": sweep, "evaluator": evaluator, "server": server, "keeper": keeper,
    "preparer": preparer, "forgotten": forgotten, "returning": returning, "bare": bare,
}  # fmt: skip

USUAL = {
    "explorer": 5, "trainer": 5, "sweep": 3, "evaluator": 4, "server": 2, "keeper": 2, "preparer": 2, "forgotten": 3, "returning": 1, "bare": 3,
}  # fmt: skip


def of_one_job(lead: random.Random, p: Pressure, gpus: int, rank: int, size: int) -> Life:
    """
    One machine of a gang. All members draw the same dice, so their jobs begin and end together; in some phases only the
    first rank works and the others wait with nothing to show for it.
    """
    for n in count(1):
        job = f"gang-{n}"
        busy = Doing("training together", gpu=lead.uniform(0.5, 1.0), cpu=0.1, cores=1.0, held=True, job=job)
        for _ in range(lead.randint(1, 6)):
            yield lead.uniform(4 * MINUTE, 25 * MINUTE), busy
            alone, long = lead.random() < 0.5, lead.random()
            length = lead.uniform(2 * MINUTE, 30 * MINUTE) if long < 0.5 else p.held + p.wait + lead.uniform(-5 * MINUTE, 40 * MINUTE)
            # Who waits for the first rank has let go of its GPUs, so that its own term is the short one.
            if alone:
                yield length, busy if rank == 0 else IDLE
            else:
                yield min(length, 0.5 * p.idle), replace(busy, name="paused", gpu=0.0, cpu=0.03, cores=0.02)
        yield a_break(lead, p.idle + p.wait, p), IDLE
