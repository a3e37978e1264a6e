"""
Which processes there are, without listing all of a machine's each time.

Listing a thousand costs more than all that is read of them, and nearly all are those of a minute ago. The kernel gives
numbers upwards and tells the last one that it gave, and its list can be begun at a number. So only what was made since is
listed, and all of them now and then: for those that ended, and for the few that were given a number of somebody's choice
(containers that are restored). Where the kernel cannot be asked so, all are listed each time.
"""

from __future__ import annotations

import os
from typing import Callable, List, NamedTuple, Optional, Set

WHOLE_EVERY = 16
# Where process 0 would stand in the list, behind 256 entries of the kernel's own and two links (TGID_OFFSET in fs/proc/base.c).
_OFFSET = 258


class Pids(NamedTuple):
    """
    ``known``: all that live, and some that ended since all were listed. ``came``: those of them that were not there at the
    last look, by a number that may have been another's.
    """

    known: List[int]
    came: Set[int]


class Listing:
    """Remembers the numbers of now. ``last_made``: the number given last, None where that is not known; the kernel's, unless given."""

    def __init__(self, proc: str, last_made: Optional[Callable[[], Optional[int]]] = None) -> None:
        self._proc, self._last_made = proc, last_made if last_made is not None else self._ask_last_made
        self._known: List[int] = []
        self._all: Set[int] = set()
        self._before: Optional[int] = None  # the number given last at the last look
        self._earlier: Optional[int] = None  # and at the one before that: a process that was just being made then shows only now
        self._left = 0  # looks until all are listed
        self._obeys: Optional[bool] = None

    def forget(self) -> None:
        """At the next look everybody came."""
        self._known, self._all, self._left = [], set(), 0

    def look(self, sparing: bool = False) -> Optional[Pids]:
        """``sparing``: where all would have to be listed each time, leave it at those of the last look. None: they cannot be listed."""
        made = self._last_made()  # before the list, so that none falls between
        before, earlier = self._before, self._earlier
        if self._left > 0 and made is not None and before is not None and earlier is not None and earlier <= before <= made:
            listed = self._list(earlier + 1)
            whole = False
        elif sparing and self._obeys is False and self._known:
            return Pids(self._known, set())
        else:
            listed = self._list(0)
            whole = True
        if listed is None:
            return None
        came = {pid for pid in listed if pid not in self._all or _is_new(pid, before, made)}
        if whole:
            if self._obeys is None:
                self._obeys = self._begins_where_it_is_asked_to()
            self._known, self._all, self._left = listed, set(listed), WHOLE_EVERY - 1 if self._obeys else 0
        else:
            self._known = self._known + sorted(came - self._all)
            self._all |= came
            self._left -= 1
        self._before, self._earlier = made, before
        return Pids(self._known, came)

    def _list(self, first: int) -> Optional[List[int]]:
        """Those from this number on."""
        try:
            file = os.open(self._proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if first:
                os.lseek(file, _OFFSET + first, os.SEEK_SET)
            return [int(name) for name in os.listdir(file) if name.isdigit()]
        except OSError:
            return None
        finally:
            os.close(file)

    def _begins_where_it_is_asked_to(self) -> bool:
        """Whether this is a kernel's list, of our own numbers, and one asked from ourselves on begins with us."""
        try:
            if os.readlink(self._proc + "/self") != str(os.getpid()):
                return False
        except OSError:
            return False
        listed = self._list(os.getpid())
        return bool(listed) and listed[0] == os.getpid() == min(listed) if listed is not None else False

    def _ask_last_made(self) -> Optional[int]:
        try:
            file = os.open(self._proc + "/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return int(os.read(file, 256).split()[-1])
        except (OSError, ValueError, IndexError):
            return None
        finally:
            os.close(file)


def _is_new(pid: int, before: Optional[int], made: Optional[int]) -> bool:
    """Whether this number was given since, so that it is not who had it before. Where the numbers began anew, the low ones were, too."""
    if before is None or made is None:
        return False
    return pid > before if before <= made else (pid > before or pid <= made)
