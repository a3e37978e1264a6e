"""
Who is below a process: its children, theirs, and so on, at a cost that does not grow with its threads.

Each thread has children of its own, in a file of its own, and a trainer has hundreds of threads. So all of them are
read at the first sight of a process, and from then on its main thread, those that ever had a child, those that are
new, and a few of the rest in turn. A child once found stays for as long as it lives below that process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, NamedTuple, Set

from agent.procs import Procs

MOST_NEW = 64  # new threads that are read at one look
IN_TURN = 4
_MOST_PARENTS = 16
_MOST_PROCESSES = 4096


class Family(NamedTuple):
    """A process and all below it, itself first. ``whole``: none can have been missed, but for a thread's very first child."""

    members: List[int]
    whole: bool


@dataclass
class _Process:
    read: Set[int] = field(default_factory=set)  # threads whose children have been read once
    parents: Dict[int, None] = field(default_factory=dict)  # threads that had a child, the newest last
    children: Set[int] = field(default_factory=set)
    turn: int = 0
    whole: bool = True


class Families:
    """Remembers the processes of now, and their births only by the parents they have."""

    def __init__(self, procs: Procs) -> None:
        self._procs = procs
        self._known: Dict[int, _Process] = {}

    def of(self, tops: Iterable[int]) -> Dict[int, Family]:
        known: Dict[int, _Process] = {}
        families = {top: self._family(top, known) for top in tops}
        self._known = known
        return families

    def _family(self, top: int, known: Dict[int, _Process]) -> Family:
        found, seen, todo, whole = [top], {top}, [top], True
        while todo:
            pid = todo.pop()
            process = known.get(pid)
            if process is None:
                process = known[pid] = self._look(pid)
            whole = whole and process.whole
            for child in sorted(process.children - seen):
                if len(found) >= _MOST_PROCESSES:
                    return Family(found, False)
                seen.add(child)
                found.append(child)
                todo.append(child)
        return Family(found, whole)

    def _look(self, pid: int) -> _Process:
        threads = self._procs.threads(pid)
        if threads is None:
            return _Process()  # gone or hidden, which its own figures tell
        before = self._known.get(pid)
        process = before if before is not None else _Process()
        unread = [thread for thread in threads if thread not in process.read]
        process.read.intersection_update(threads)
        if before is None:
            asked = threads
        else:
            asked = list(dict.fromkeys((pid, *process.parents, *unread[:MOST_NEW], *self._in_turn(process, threads))))
        process.whole = before is None or len(unread) <= MOST_NEW
        self._ask(pid, process, [thread for thread in asked if thread in set(threads)])
        return process

    def _in_turn(self, process: _Process, threads: List[int]) -> List[int]:
        begin = process.turn % len(threads) if threads else 0
        process.turn = begin + IN_TURN
        return (threads + threads)[begin : begin + min(IN_TURN, len(threads))]

    def _ask(self, pid: int, process: _Process, threads: List[int]) -> None:
        found: Set[int] = set()
        for thread in threads:
            children = self._procs.children_of_thread(pid, thread)
            if children is None:
                # Of a thread that just ended nothing is missed. Without the main one's list this kernel keeps none.
                process.whole = process.whole and thread != pid
                continue
            process.read.add(thread)
            if children:
                process.parents.pop(thread, None)
                process.parents[thread] = None
                found.update(children)
        while len(process.parents) > _MOST_PARENTS:
            del process.parents[next(iter(process.parents))]
        process.children = found | {child for child in process.children - found if self._is_below(child, pid)}

    def _is_below(self, child: int, pid: int) -> bool:
        stat = self._procs.stat(child)
        return stat is not None and stat.parent == pid
