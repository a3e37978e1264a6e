"""
What a few processes were started with, asked by a thread of its own.

Reading a command or an environment needs the memory map of its process, and one that hangs there makes who asks hang
too. So another thread asks, and an answer that is not there in a moment is there at the next look, or never.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, Generic, Iterable, List, Optional, Tuple, TypeVar

WITHIN_S = 0.25

Identity = Tuple[int, int]  # pid and birth
_T = TypeVar("_T")


class Asked(Generic[_T]):
    """Remembers the answers about those asked for at the last look. ``read`` gives None for what may not be read, or ended."""

    def __init__(self, read: Callable[[int], Optional[_T]], within_s: float = WITHIN_S) -> None:
        self._read, self._within_s = read, within_s
        self._known: Dict[Identity, Optional[_T]] = {}
        self._asking: Optional[threading.Thread] = None

    def of(self, asked: Iterable[Identity]) -> Dict[Identity, Optional[_T]]:
        """Answers that are known by now. Who is not in it may be known later."""
        wanted = set(asked)
        known = {who: words for who, words in list(self._known.items()) if who in wanted}
        missing = sorted(wanted - known.keys())
        if missing and (self._asking is None or not self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, args=(missing, known), name="asked", daemon=True)
            self._asking.start()
            self._asking.join(self._within_s)
        self._known = known
        return dict(list(known.items()))

    def _ask(self, missing: List[Identity], known: Dict[Identity, Optional[_T]]) -> None:
        for pid, born in missing:
            known[(pid, born)] = self._read(pid)
