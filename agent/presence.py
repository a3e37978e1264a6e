"""
Who works on this machine besides its GPUs: sessions, kernels, editors, jobs of cron, what was left in the background.

By trees of processes and the times of terminals, not by login records, which are often stale or absent, and of what is
there now, not of what was seen to begin. Input and work count; an open connection, a browser's tab or a server that
waits do not. What could not be seen is said in words, since then "nobody" is not known.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from agent import doors, kernels
from agent.asked import Asked
from agent.procs import Procs, Stat
from agent.readings import AtWorkReading, PresenceReading
from agent.roster import Listed, Place, Roster

PTS = Path("/dev/pts")
MOST_HEADS = 256
MOST_READ = 512  # processes whose bytes are read
_CLOCK_STEP_S = 5.0

_Identity = Tuple[int, int]  # pid and birth


class _Before(NamedTuple):
    """Of one process at the last look. ``head``: of the tree it was counted in."""

    born: int
    ticks: int
    reaped: int
    bytes_: Optional[int]
    head: _Identity


class _Head(NamedTuple):
    pid: int
    born: int
    kind: str
    members: List[int]
    terminal: int


class Presence:
    """``names``: of users by number. Looks when it is asked to; costs what the processes of people cost, not those of the machine."""

    def __init__(
        self,
        procs: Procs,
        names: Callable[[int], str],
        nobodys: Callable[[str], bool] = lambda name: False,
        pts: Path = PTS,
        busy: Callable[[Procs, int, str], Optional[bool]] = kernels.is_busy,
        us: Optional[int] = None,
    ) -> None:
        self._procs, self._names, self._pts, self._busy = procs, names, str(pts), busy
        self.roster = Roster(procs, nobodys, us if us is not None else os.getpid())
        self._on_the_machine = procs.on_the_machine()
        self._commands = Asked(self._command)
        self._before: Dict[int, _Before] = {}
        self._looked_s: Optional[float] = None
        self._typed: Dict[_Identity, Tuple[float, Optional[float]]] = {}  # by head: the time its terminal shows, and when we saw that change
        self._busy_since: Dict[_Identity, float] = {}
        self._users: Dict[_Identity, Optional[int]] = {}
        self.clients: Tuple[int, ...] = ()  # processes that start containers, at the last look

    def look(self, now_s: float, utc_s: float) -> PresenceReading:
        """``now_s``: the boot clock, ``utc_s``: Unix time, by which terminals are stamped."""
        listed = self.roster.look()
        if listed is None:
            self.clients = ()
            return PresenceReading(now_s, unread=("the processes of other users",))
        self.clients = tuple(listed.clients)
        unread: List[str] = [] if listed.whole else ["more processes than are looked at"]
        if not self._on_the_machine:  # nobody in here is not nobody on the machine
            unread.append("processes outside of the agent's own container")
        kinds, asked_for = self._kinds(listed)
        if asked_for:
            unread.append("what %d programs are (asked, and no answer yet)" % asked_for)
        heads = self._heads(listed, kinds)
        if len(heads) > MOST_HEADS:
            unread.append("more sessions than are looked at")
        for_s = now_s - self._looked_s if self._looked_s is not None else None
        after: Dict[int, _Before] = {}
        gone = self._gone(listed.stats)
        items = [self._item(head, listed, for_s, gone, now_s, utc_s, unread, after) for head in heads[:MOST_HEADS]]
        living = {(head.pid, head.born) for head in heads}
        self._typed = {who: seen for who, seen in self._typed.items() if who in living}
        self._busy_since = {who: at for who, at in self._busy_since.items() if who in living}
        self._users = {who: uid for who, uid in self._users.items() if who in living}
        self._before, self._looked_s = after, now_s
        return PresenceReading(now_s, for_s, tuple(item for item in items if item is not None), tuple(dict.fromkeys(unread)))

    # --- which trees there are ---

    def _command(self, pid: int) -> Optional[Tuple[str, ...]]:
        words = self._procs.arguments(pid)
        return tuple(word[:200] for word in words[:12]) if words is not None else None

    def _kinds(self, listed: Listed) -> Tuple[Dict[int, str], int]:
        """Of those that are a kernel, an editor or a notebook server by their command; and of how many that is not known yet."""
        asked = {
            (pid, stat.born): pid
            for pid, stat in listed.stats.items()
            if not listed.places[pid].is_door and doors.may_be_either(stat.name)
        }
        known = self._commands.of(asked)
        found = {asked[who]: kind for who, words in known.items() if words is not None for kind in [doors.kind_of_command(words)] if kind is not None}
        return found, len(asked) - len(known)

    def _heads(self, listed: Listed, kinds: Mapping[int, str]) -> List[_Head]:
        heads: Dict[int, _Head] = {}
        found: Dict[int, int] = {}
        parents = {stat.parent for stat in listed.stats.values()}
        for pid, place in listed.places.items():
            if place.is_door and pid not in parents and self._may_carry(pid, listed):
                heads[pid] = _Head(pid, listed.stats[pid].born, place.kind, [pid], 0)
            if place.is_door or kinds.get(pid) == doors.NOTEBOOK:
                continue
            top = self._head_of(pid, listed, kinds, found)
            stat = listed.stats[top]
            if top not in heads:
                heads[top] = _Head(top, stat.born, self._kind(top, listed.places[top], stat, kinds), [], stat.terminal if stat.session == top else 0)
            heads[top].members.append(pid)
        return [heads[top] for top in sorted(heads)]

    def _may_carry(self, pid: int, listed: Listed) -> bool:
        """
        Whether it is the end of an ssh connection, which, with nothing below it, carries files by itself (`internal-sftp`: sftp, scp,
        sshfs) or what is forwarded. What it moves counts, that it is there does not.
        """
        above = listed.places.get(listed.stats[pid].parent)
        return listed.stats[pid].name in doors.SSHDS and above is not None and above.is_door and above.kind == doors.SSH

    def _head_of(self, pid: int, listed: Listed, kinds: Mapping[int, str], found: Dict[int, int]) -> int:
        """The nearest of it and those above it that is a session with a terminal, a kernel, an editor, or stands below a door."""
        climbed: List[int] = []
        at = pid
        while at not in found:
            stat, place = listed.stats[at], listed.places[at]
            parent, kind = stat.parent, kinds.get(at)
            above = listed.places.get(parent)
            topmost = above is None or above.is_door or above.head != place.head or kinds.get(parent) == doors.NOTEBOOK
            own = (stat.session == at and stat.terminal != 0) or (kind is not None and kind != kinds.get(parent))
            climbed.append(at)
            if topmost or own or parent in climbed:
                found[at] = at
                break
            at = parent
        for number in climbed:
            found[number] = found[at]
        return found[pid]

    def _kind(self, pid: int, place: Place, stat: Stat, kinds: Mapping[int, str]) -> str:
        if pid in kinds:
            return kinds[pid]
        with_terminal = stat.session == pid and stat.terminal != 0
        return doors.TERMINAL if with_terminal and place.kind in (doors.NOTEBOOK, doors.BACKGROUND, doors.DESKTOP) else place.kind

    # --- what one of them does ---

    def _gone(self, stats: Mapping[int, Stat]) -> Dict[_Identity, int]:
        """By tree, what was counted at the last look of those that ended since: it is in their parents' sums by now."""
        gone: Dict[_Identity, int] = {}
        for pid, was in self._before.items():
            stat = stats.get(pid)
            if stat is None or stat.born != was.born:
                gone[was.head] = gone.get(was.head, 0) + was.ticks + was.reaped
        return gone

    def _item(
        self, head: _Head, listed: Listed, for_s: Optional[float], gone: Mapping[_Identity, int], now_s: float, utc_s: float,
        unread: List[str], after: Dict[int, _Before],
    ) -> Optional[AtWorkReading]:  # fmt: skip
        who = (head.pid, head.born)
        since = self._looked_s * self._procs.ticks_per_s if self._looked_s is not None else float("inf")
        own = all_now = all_before = 0
        bytes_: Optional[int] = 0
        known = for_s is not None
        busiest, most = head.pid, 0
        reads = len(after) < MOST_READ
        for pid in head.members:
            stat, was = listed.stats[pid], self._before.get(pid)
            io = self._procs.io(pid) if reads else None
            put = (io.called or 0) + (io.put or 0) if io is not None and io.called is not None else None
            after[pid] = _Before(stat.born, stat.ticks, stat.reaped, put, who)
            if was is None or was.born != stat.born:
                if stat.born < since:  # it was there before and nobody looked: only from now on
                    was = after[pid]
                else:
                    was = _Before(stat.born, 0, 0, 0, who)
            grown = max(0, stat.ticks - was.ticks)
            own += grown
            all_now, all_before = all_now + stat.ticks + stat.reaped, all_before + was.ticks + was.reaped
            if grown > most:
                busiest, most = pid, grown
            bytes_ = bytes_ + max(0, put - was.bytes_) if bytes_ is not None and put is not None and was.bytes_ is not None else None
        # What ran and ended between two looks shows in the sums of who waited for it.
        ticks = max(own, all_now - all_before - gone.get(who, 0))
        idle_s = self._idle_s(head, now_s, utc_s, unread) if head.terminal else None
        busy, busy_s = self._kernel(head, listed.stats[head.pid].name, now_s, unread) if head.kind == doors.KERNEL else (None, None)
        if not (head.terminal or ticks or bytes_ or head.kind in (doors.KERNEL, doors.EDITOR)):
            return None
        uid = self._uid(who)
        return AtWorkReading(
            "%d-%d" % who, head.kind, self._names(uid) if uid is not None else None, uid, self._shown(head, listed.stats, busiest), idle_s,
            ticks / self._procs.ticks_per_s if known else None, bytes_ if known else None, busy, busy_s,
        )  # fmt: skip

    def _shown(self, head: _Head, stats: Mapping[int, Stat], busiest: int) -> str:
        """What is in the foreground of its terminal; else who used the most CPU."""
        foreground = stats[head.pid].foreground
        return stats[foreground if head.terminal and foreground in head.members else busiest].name

    def _uid(self, who: _Identity) -> Optional[int]:
        if who not in self._users:
            self._users[who] = self._procs.uid(who[0])
        return self._users[who]

    def _kernel(self, head: _Head, name: str, now_s: float, unread: List[str]) -> Tuple[Optional[bool], Optional[float]]:
        who = (head.pid, head.born)
        busy = self._busy(self._procs, head.pid, name)
        if busy is None:
            unread.append("whether notebook kernels run a cell (where they sleep)")
        if not busy:
            self._busy_since.pop(who, None)
            return busy, None
        return True, now_s - self._busy_since.setdefault(who, now_s)

    def _idle_s(self, head: _Head, now_s: float, utc_s: float, unread: List[str]) -> Optional[float]:
        """Since somebody last typed. Once we have seen a terminal's time change, the boot clock tells, whatever the wall clock does."""
        who = (head.pid, head.born)
        read_at = self._procs.terminal_read_at(head.pid)
        read_at = read_at if read_at is not None else self._on_the_host(head)
        if read_at is None:
            unread.append("when somebody typed into %s terminals" % ("containers'" if head.kind == doors.CONTAINER else "some"))
            return None
        before = self._typed.get(who)
        if before is None:
            changed_s = now_s - (utc_s - read_at) if utc_s - read_at > -_CLOCK_STEP_S else None
            if changed_s is None or changed_s > now_s:
                changed_s = now_s  # typed a moment ago, or by a clock that was ahead: as late as it can have been
        elif read_at != before[0]:
            changed_s = max(before[1] or 0.0, min(now_s, now_s - (utc_s - read_at))) if 0.0 <= utc_s - read_at <= now_s - (self._looked_s or 0.0) else now_s
        else:
            changed_s = before[1]
        self._typed[who] = (read_at, changed_s)
        return max(0.0, now_s - changed_s) if changed_s is not None else None

    def _on_the_host(self, head: _Head) -> Optional[float]:
        """The machine's own terminal of that number. (A container has numbers of its own, so its terminals are not looked for here.)"""
        major, minor = os.major(head.terminal), os.minor(head.terminal)
        if head.kind == doors.CONTAINER:
            return None
        if 136 <= major <= 143:
            path = "%s/%d" % (self._pts, (major - 136) * 256 + minor)
        elif major == 4 and minor < 64:
            path = "%s/tty%d" % (os.path.dirname(self._pts), minor)
        else:
            return None
        try:
            seen = os.stat(path)
        except OSError:
            return None
        return seen.st_atime

