"""
Which processes belong to somebody's work, without reading every process of a machine each time.

Read are those not seen before, once more at the look after that (one that was just forked has not started its program
yet), doors and all that stands below them, and a few of the rest in turn, so that one that became something else is
found as well. Of the rest nothing is kept but their numbers.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from agent import doors
from agent.procs import Procs, Stat

IN_TURN = 8
MOST_KEPT = 4096
_KTHREADD = 2
_PTS = range(136, 144)  # the device numbers of pseudo-terminals


class Place(NamedTuple):
    """Where a process stands: ``head``, the process right below a door, and by which door it came. A door's own head is itself."""

    head: int
    kind: str
    is_door: bool = False


class Listed(NamedTuple):
    """``stats`` and ``places`` of doors and of those below them; ``clients``: what starts containers. ``whole``: none was left out."""

    stats: Mapping[int, Stat]
    places: Mapping[int, Place]
    clients: List[int]
    whole: bool = True


class Roster:
    """``nobodys`` by name: such a process, and all below it, is left out. ``us``: so are we."""

    def __init__(self, procs: Procs, nobodys: Callable[[str], bool] = lambda name: False, us: Optional[int] = None) -> None:
        self._procs, self._nobodys, self._us = procs, nobodys, us
        self._listing = procs.listing()
        self._once: Dict[int, Tuple[int, str, int]] = {}  # that came at the last look: birth, name and parent
        self._places: Dict[int, Place] = {}
        self._born: Dict[int, int] = {}
        self._turn = 0
        self._now: Mapping[int, Stat] = {}

    def look(self) -> Optional[Listed]:
        """None: the processes are hidden from us."""
        listed = self._listing.look() if self._procs.shows_others() else None
        if listed is None:
            return None
        pids, came = listed
        stats: Dict[int, Stat] = {}
        for pid in came.union(self._once, self._in_turn(pids), self._places):
            stat = self._procs.stat(pid)
            if stat is not None and stat.lives:
                stats[pid] = stat
        self._now = stats
        places: Dict[int, Optional[Place]] = {}
        for pid in stats:
            self._place(pid, stats, places)
        kept = {pid: place for pid, place in places.items() if place is not None}
        whole = len(kept) <= MOST_KEPT
        if not whole:
            kept = dict(sorted(kept.items())[:MOST_KEPT])
        self._once = {pid: (stats[pid].born, stats[pid].name, stats[pid].parent) for pid in came if pid in stats}
        self._places, self._born = kept, {pid: stats[pid].born for pid in kept}
        self._now = {}
        clients = [pid for pid, stat in stats.items() if doors.starts_containers(stat.name)]
        for pid in clients:
            kept.setdefault(pid, Place(pid, doors.BACKGROUND, True))  # so that it is read at the next look
        return Listed({pid: stats[pid] for pid in kept}, kept, clients, whole)

    def _in_turn(self, pids: List[int]) -> List[int]:
        begin = self._turn % len(pids) if pids else 0
        self._turn = begin + IN_TURN
        return pids[begin : begin + IN_TURN]

    def _place(self, pid: int, stats: Mapping[int, Stat], places: Dict[int, Optional[Place]]) -> Optional[Place]:
        """Climbs to what is placed already; by a loop, since a chain can be long."""
        climbed: List[int] = []
        at = pid
        while at not in places and at in stats and at not in climbed:
            climbed.append(at)
            if self._is_left_out(at, stats[at]) or doors.door(stats[at].name) is not None:
                break
            at = stats[at].parent
        above = places.get(at)
        for number in reversed(climbed):
            above = places[number] = self._below(number, stats[number], above)
        return places.get(pid)

    def _is_left_out(self, pid: int, stat: Stat) -> bool:
        return pid in (1, self._us) or _KTHREADD in (pid, stat.parent) or self._nobodys(stat.name)

    def _below(self, pid: int, stat: Stat, above: Optional[Place]) -> Optional[Place]:
        """``above``: of its parent. None: nobody's work."""
        if self._is_left_out(pid, stat):
            return None
        kind = doors.door(stat.name)
        if kind is not None:
            return Place(pid, kind, True)
        if above is not None:
            return Place(pid, above.kind) if above.is_door else above
        if self._once.get(pid) == (stat.born, stat.name, stat.parent) and pid not in self._places:
            return None  # as it was when it was looked at a moment ago
        before = self._places.get(pid)
        lost = self._lost_its_parent(stat)
        if before is not None and not before.is_door and self._born.get(pid) == stat.born and lost:
            return Place(pid, doors.BACKGROUND)  # it was somebody's, and outlived who started it
        if lost:
            return Place(pid, doors.BACKGROUND) if self._is_somebodys(pid) else None
        if stat.session == pid and os.major(stat.terminal) in _PTS:
            return Place(pid, doors.TERMINAL)  # whatever opened it: a terminal in a browser, a service of ours
        # A person's, started by what is none: by whatever lets people in or runs their jobs here, and is no door that we know.
        return Place(pid, doors.BACKGROUND) if self._came_from_a_service(pid, stat.parent) else None

    def _came_from_a_service(self, pid: int, parent: int) -> bool:
        owner, above = self._procs.owner(pid), self._procs.owner(parent)
        return owner is not None and doors.is_regular(owner) and above is not None and not doors.is_regular(above)

    def _lost_its_parent(self, stat: Stat) -> bool:
        if stat.parent <= 1:
            return True
        parent = self._now.get(stat.parent) or self._procs.stat(stat.parent)
        return parent is None or parent.name in doors.INITS

    def _is_somebodys(self, pid: int) -> bool:
        """Of a person's number, or left behind in the group of a login."""
        uid = self._procs.uid(pid)
        if uid is not None and doors.is_regular(uid):
            return True
        return doors.is_left_by_somebody(self._procs.text("%d/cgroup" % pid) or "")
