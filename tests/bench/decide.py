"""
A full pass over 10,000 machines of 8 GPUs, each with a day of one-minute history behind its idle clock.

The history is folded for a hundred different machines and copied to the others: folding it takes far longer than the
pass that is measured. The baseline is the least that any pass must do: compare each machine's last busy time, held time
and report age with its term, in a loop written by hand.
"""

import copy
import gc
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from reaper.decide.engine import decide
from reaper.decide.windows import IdleClock
from reaper.model.kinds.instance import Protections
from reaper.model.resource import Place
from reaper.model.signal import GpuWindow, LoaderWindow, Observation
from reaper.ports import KeptListing
from reaper.service.gather import Gathering, Known
from reaper.service.inventory import Inventory
from reaper.service.watch import Watch
from tests.bench.rows import Row, measured
from tests.fakes.clock import START
from tests.scenarios.world import ACCOUNT, REGION, configuration, machine

T = TypeVar("T")

MACHINES, KINDS, GPUS, MINUTES = 10_000, 100, 8, 24 * 60


def history(kind: int) -> tuple[IdleClock, Observation]:
    """A day of one machine's life: bursts of work of random length with quiet hours between."""
    dice = random.Random(kind)
    clock, busy, left = IdleClock(), False, 0
    seen: Observation | None = None
    for minute in range(MINUTES):
        if left == 0:
            busy, left = not busy, dice.randint(1, 240)
        left -= 1
        up = 1000.0 + 60.0 * (minute + 1)
        peaks = [dice.randint(40, 100) / 100 if busy else dice.choice((0.0, 0.0, 0.01)) for _ in range(GPUS)]
        seen = Observation(
            resource=machine("i-x").id, boot_id="b", seq=int(up * 1000), up_s=up, window_s=60.0, started_at=START + timedelta(minutes=minute - MINUTES),
            ended_at=START + timedelta(minutes=minute + 1 - MINUTES), received_at=START, verified=True, sampler="ok", expected_gpus=GPUS,
            gpus=tuple(
                GpuWindow(f"GPU-{i}", "Tesla V100-SXM2-16GB", peak, peak / 2, 60.0 if dice.random() < 0.95 else 55.0, 0, 16 << 30, processes=int(busy))
                for i, peak in enumerate(peaks)
            ),
            loaders=(LoaderWindow("t", 0.0, 0.01),) if busy else (), cpu_ratio=dice.random() / 10, cpus=64,
            disk_bytes_per_s=dice.random() * 1e6, net_bytes_per_s=dice.random() * 1e6, orchestrators=(),
        )  # fmt: skip
        clock.add(seen)
    assert seen is not None
    return clock, seen


def run() -> list[Row]:
    kinds = [history(kind) for kind in range(KINDS)]
    watch = Watch()
    place = Place("aws", ACCOUNT, REGION)
    machines = tuple(machine(f"i-{n:06}", type="p3.16xlarge", gpus=GPUS, volumes=(), interfaces=()) for n in range(MACHINES))
    for n, one in enumerate(machines):
        clock, newest = kinds[n % KINDS]
        watch.add(replace(newest, resource=one.id))
        watch._machines[one.id].clock = copy.deepcopy(clock)  # what a day of reports would have left there
    inventory = Inventory({place: KeptListing(place, machines, START)})
    config = configuration()
    now = START + timedelta(seconds=5)

    gc.collect()
    gc.freeze()  # as the daemon does once it has its history

    def full_pass() -> Counter[str]:
        gathering = Gathering(inventory, Known(), watch, config, now)
        read = Protections(stop_protected=False)
        return Counter(decide(gathering.facts(one.id, now, read), now).verdict.value for one in machines)

    quiet = [watch.quiet(one.id, config.policies[0].limits) for one in machines]
    known = [(q.since, q.unheld_since, q.until) for q in quiet if q is not None]
    term, held_term = config.policies[0].idle.idle_for, config.policies[0].idle.held_for

    def least() -> int:
        return sum(1 for since, unheld, until in known if now - until < timedelta(minutes=3) and (now - unheld >= term or now - since >= held_term))

    seconds, verdicts = _median(full_pass)
    floor, _ = _median(least)
    steps = sum(clock.steps for clock, _ in kinds) / KINDS
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return [
        measured(f"decide: full pass over {MACHINES:,} machines ({shown})", seconds, "s", "under 1 s on one core", seconds < 1.0, floor),
        measured("decide: a machine", seconds / MACHINES * 1e6, "us", "", True),
        measured("decide: steps a clock keeps of a day of 8 GPUs", steps, "steps", "", True),
        measured("decide: peak memory of the whole run", peak_mib, "MiB", "", True),
    ]


def _median(work: Callable[[], T], rounds: int = 5) -> tuple[float, T]:
    """The median CPU time of ``rounds``, and the last result."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        result = work()
        taken.append(time.process_time() - began)
    return sorted(taken)[rounds // 2], result
