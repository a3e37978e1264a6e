"""
Many questions at once, by a bounded number of threads, where one that hangs keeps no other waiting.

A question that failed or hung the last time goes into a lane of its own with few threads, so that a hundred places that
hang leave the lane of the good ones alone. Threads are daemons: one that hangs does not keep the process from ending.
"""

import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AT_ONCE = 16
"""Questions out at the same time: all regions of a usual account."""

DOUBTFUL_AT_ONCE = 4


class Fanout(Generic[K, T]):
    """Not for several callers at once: one listing goes on at a time."""

    def __init__(self, name: str, at_once: int = AT_ONCE, doubtful_at_once: int = DOUBTFUL_AT_ONCE) -> None:
        self._good = _Lane(name, at_once)
        self._doubtful = _Lane(f"{name}-again", doubtful_at_once)
        self._out: dict[K, Future[T]] = {}
        self._doubted: set[K] = set()

    def ask(self, questions: Mapping[K, Callable[[], T]], within: float) -> dict[K, "Future[T] | None"]:
        """
        Each question's future, done or not when ``within`` seconds are over. None: the question of an earlier time is still
        out, and a second one would only queue up behind it.
        """
        futures: dict[K, Future[T] | None] = {}
        for key, question in questions.items():
            before = self._out.get(key)
            if before is not None and not before.done():
                futures[key] = None
                continue
            lane = self._doubtful if key in self._doubted else self._good
            futures[key] = self._out[key] = lane.put(question)
        wait([future for future in futures.values() if future is not None], timeout=within)
        for key, future in futures.items():
            if future is not None and future.done() and future.exception() is None:
                self._doubted.discard(key)
            else:
                self._doubted.add(key)
        for key in self._out.keys() - questions.keys():
            if self._out[key].done():
                del self._out[key]
        return futures


class _Lane:
    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers = 0
        self._waiting = 0

    def put(self, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            self._waiting += 1
            self._queue.put((future, work))
            if self._workers < min(self._limit, self._waiting):
                self._workers += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._workers}", daemon=True).start()
        return future

    def _serve(self) -> None:
        """Until the lane is empty; the next question starts a thread again."""
        while True:
            with self._lock:
                if self._queue.empty():
                    self._workers -= 1
                    return
                future, work = self._queue.get()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                future.set_exception(error)
            finally:
                with self._lock:
                    self._waiting -= 1
