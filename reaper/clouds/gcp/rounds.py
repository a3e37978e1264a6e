"""One question to each of many projects at a time, where one that hangs keeps no other waiting, nor the process from ending."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 8
"""Projects asked at the same time."""


class Rounds(Generic[T]):
    """``ask``: of a project. Whatever it raises is its future's exception. Not for several callers at once."""

    def __init__(self, name: str, ask: Callable[[str], T], at_once: int = AT_ONCE) -> None:
        self._name, self._ask = name, ask
        self._slots = threading.BoundedSemaphore(at_once)
        self._under_way: dict[str, Future[T]] = {}

    def begin(self, projects: Iterable[str]) -> dict[str, "Future[T] | None"]:
        """None: the last round's question is still out, and a second one would only queue up behind it."""
        return {project: self._begin(project) for project in projects}

    def _begin(self, project: str) -> "Future[T] | None":
        before = self._under_way.get(project)
        if before is not None and not before.done():
            return None
        future: Future[T] = Future()
        self._under_way[project] = future

        def work() -> None:
            with self._slots:
                try:
                    future.set_result(self._ask(project))
                except Exception as error:  # noqa: BLE001 - becomes the reason for which the project is not known
                    future.set_exception(error)

        # daemons: a project that hangs must not keep the process from ending
        threading.Thread(target=work, name=f"{self._name}-{project}", daemon=True).start()
        return future
