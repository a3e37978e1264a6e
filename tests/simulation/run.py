"""One seed: draw the world, let it live, and say what happened."""

import gc
import os
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import structlog

from reaper.log import Log
from tests.simulation import chaos
from tests.simulation.fleet import draw
from tests.simulation.judge import Enough, Judge, Violation
from tests.simulation.lives import DAY
from tests.simulation.world import World


@dataclass(slots=True)
class Outcome:
    """
    What one seed came to. ``saved``, ``wasted`` in hours. ``mornings``: owed, made and late. ``by_its_words``: stops of what works or was
    never heard, by a schedule that says so. ``story``: kept of failing seeds.
    """

    seed: int
    weather: str
    machine_days: float
    actions: int
    late_work: int
    saved: float
    wasted: float
    took_s: float
    violations: list[Violation]
    faults: dict[str, int]
    story: list[str] = field(default_factory=list)
    mornings: tuple[int, int, int] = (0, 0, 0)
    by_its_words: int = 0

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def run(seed: int, focus: frozenset[str] = frozenset(), *, story: bool = False, one_is_enough: bool = False) -> Outcome:
    """
    The same for the same seed and focus, in a process that was started with PYTHONHASHSEED=0 (sets have an order, too).

    ``one_is_enough``: stop at the first violation.
    """
    began = time.process_time()
    structlog.configure(processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger(50))
    shared = Path("/dev/shm")
    state = Path(tempfile.mkdtemp(prefix="sim-", dir=shared if os.access(shared, os.W_OK) else None))
    try:
        with _drawn(seed):
            world = World(draw(seed, focus), state, Judge)
            world.one_is_enough = one_is_enough
            with _bugs_accused(world):
                _live(world)
    finally:
        shutil.rmtree(state, ignore_errors=True)
        gc.collect()
    judge, useful = world.judge, world.judge.useful
    keep = story or bool(judge.violations)
    return Outcome(
        seed, world.fleet.weather, useful.machine_s / DAY, judge.actions, judge.late_work, useful.saved / 3600, useful.wasted / 3600,
        time.process_time() - began, judge.violations, dict(world.faults), world.told if keep else [],
        (judge.mornings.owed, judge.mornings.made, judge.mornings.late), judge.by_its_words,
    )  # fmt: skip


def _live(world: World) -> None:
    gc.disable()
    try:
        chaos.plan(world)
        world.run()
        world.judge.at_the_end()
    except Enough:
        pass
    except Exception:  # noqa: BLE001 - whatever the world trips over is a finding with a story, like any other
        with suppress(Enough):
            world.judge.accuse("unbroken", traceback.format_exc())
    finally:
        gc.enable()
        world.store.close()


@contextmanager
def _bugs_accused(world: World) -> Iterator[None]:
    """A daemon that trips over a bug of its own logs that with its traceback and goes on. Here that is a violation."""
    before = Log.exception

    def exception(self: Log, event: str, **_: object) -> None:
        world.judge.accuse("unbroken", f"{event}: {traceback.format_exc()}")

    Log.exception = exception  # type: ignore[method-assign]
    try:
        yield
    finally:
        Log.exception = before  # type: ignore[method-assign]


def _drop(_logger: Any, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent


@contextmanager
def _drawn(seed: int) -> Iterator[None]:
    """Ids (uuid4) come from the operating system; here they come from the seed, so that a seed is the same story every time."""
    dice = random.Random(f"ids {seed}")
    before, os.urandom = os.urandom, dice.randbytes
    try:
        yield
    finally:
        os.urandom = before
