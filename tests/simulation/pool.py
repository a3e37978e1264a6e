"""Seeds in worker processes, two by default, each started with PYTHONHASHSEED=0 so that a seed is one story for ever."""

import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

WORKERS = 2


@dataclass(frozen=True, slots=True)
class Task:
    """One seed, under a planted fault if one is named. ``one_is_enough``: stop at the first violation."""

    seed: int
    focus: frozenset[str] = frozenset()
    fault: str | None = None
    one_is_enough: bool = False
    story: bool = False


@contextmanager
def workers(count: int = WORKERS) -> Iterator[ProcessPoolExecutor]:
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def each(pool: ProcessPoolExecutor, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """Outcomes in the order of the tasks, a few seeds ahead of whoever reads them."""
    waiting: list[Future[dict[str, Any]]] = []
    rest = list(tasks)
    try:
        while rest or waiting:
            while rest and len(waiting) < 2 * WORKERS:
                waiting.append(pool.submit(work, rest.pop(0)))
            yield waiting.pop(0).result()
    finally:
        for future in waiting:
            future.cancel()


def _begin() -> None:
    from tests.simulation import run

    assert run
    parent = multiprocessing.parent_process()
    if parent is not None:  # a worker whose parent was killed would go on for minutes
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    gc.collect()
    gc.freeze()


def work(task: Task) -> dict[str, Any]:
    """In a worker. Raises DoesNotFit."""
    from tests.simulation.planted import BY_NAME, planted
    from tests.simulation.run import run

    with planted(BY_NAME[task.fault] if task.fault is not None else None):
        return run(task.seed, task.focus, story=task.story, one_is_enough=task.one_is_enough).plain()
