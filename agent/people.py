"""
Whose machine this is just now: who holds which GPU and since when, and who has typed here lately.

Only ids, names of users and names of programs leave the machine, never a command line. A terminal's access time tells
when somebody last typed; utmp is not asked, since it is often stale or absent.
"""

from __future__ import annotations

import os
import pwd
import threading
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from agent.clock import Clock
from agent.jobs import Jobs
from agent.links import LinkLook
from agent.loader import LOW_RATIO
from agent.presence import Presence
from agent.procs import Procs
from agent.readings import NO_GPU, OK, GpuReading, GpuSnapshot, JobReading, PresenceReading, WorkReading
from agent.report import Holder, Links, Person

PTS = Path("/dev/pts")
MOST_HOLDERS = 8  # of one GPU
MOST_PEOPLE = 16
RECENT_S = 24 * 3600.0
PEOPLE_EVERY_S = 20.0
PRESENCE_EVERY_S, BUSY_SELDOMER = 30.0, 6
COMPUTES = 0.25  # a share of use above which nobody would take the machine for idle
_MOST_TERMINALS = 512
_MOST_NAMES = 256
_NAME_WITHIN_S = 0.05
_CLOCK_STEP_S = 5.0


def user_name(uid: int) -> Optional[str]:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


class Names:
    """
    Names of users by number. A directory that does not answer would block the one who asks, so a thread of its own does:
    a name that is not there in a moment is there the next time, and until then the number stands in.
    """

    def __init__(self, lookup: Callable[[int], Optional[str]] = user_name) -> None:
        self._lookup = lookup
        self._names: Dict[int, Optional[str]] = {}
        self._asking: Set[int] = set()

    def of(self, uid: int) -> str:
        if uid not in self._names and not self._asking:  # one question at a time: a second thread would only hang beside it
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._asking.add(uid)
            thread = threading.Thread(target=self._ask, args=(uid,), name="user-name", daemon=True)
            thread.start()
            thread.join(_NAME_WITHIN_S)
        return self._names.get(uid) or str(uid)

    def _ask(self, uid: int) -> None:
        try:
            self._names[uid] = self._lookup(uid)
        except OSError:
            self._names[uid] = None
        finally:
            self._asking.discard(uid)


class _Process(NamedTuple):
    name: Optional[str]
    uid: Optional[int]
    since_s: float  # when we first saw it on a GPU


class Holders:
    """Who holds each GPU, and for how long nothing has run on it meanwhile. Remembers only the processes of now."""

    def __init__(self, procs: Procs, names: Names, born: Optional[Callable[[int], Optional[int]]] = None) -> None:
        self._procs, self._names, self._born = procs, names, born
        self._known: Dict[Tuple[int, int], _Process] = {}
        self._quiet_since: Dict[str, float] = {}  # GPUs on which nothing runs, by UUID
        self._all_known = True

    def look(self, gpus: Sequence[GpuReading], now_s: float) -> Dict[str, Tuple[Holder, ...]]:
        """By UUID, those with the most memory first. A GPU on which something runs names its holders, too, without a time."""
        known: Dict[Tuple[int, int], _Process] = {}
        holders = {gpu.uuid: self._of(gpu, now_s, known) for gpu in gpus if gpu.processes is not None}
        self._known = known
        self._all_known = len(known) >= len({pid for gpu in gpus for pid in gpu.pids}) and all(p.uid is not None for p in known.values())
        return holders

    def users(self) -> Set[int]:
        return {process.uid for process in self._known.values() if process.uid is not None}

    def all_known(self) -> bool:
        """Whether all that were named at the last look have a user."""
        return self._all_known

    def _of(self, gpu: GpuReading, now_s: float, known: Dict[Tuple[int, int], _Process]) -> Tuple[Holder, ...]:
        quiet_since = self._quiet(gpu, now_s)
        pids = sorted(gpu.pids, key=lambda pid: (-(gpu.pid_bytes.get(pid) or 0), pid))
        found: List[Holder] = []
        for pid in pids:
            process = self._process(pid, now_s, known)
            if len(found) < MOST_HOLDERS:
                since_s = now_s - max(quiet_since, process.since_s) if quiet_since is not None and process is not None else None
                user = self._names.of(process.uid) if process is not None and process.uid is not None else None
                found.append(Holder(pid, process.name if process is not None else None, user, gpu.pid_bytes.get(pid), since_s))
        return tuple(found)

    def _quiet(self, gpu: GpuReading, now_s: float) -> Optional[float]:
        """Since when all samples have been low. None: not so, or a beat had none, after which it is counted anew."""
        if not gpu.samples or any(sample.ratio >= LOW_RATIO for sample in gpu.samples):
            self._quiet_since.pop(gpu.uuid, None)
            return None
        return self._quiet_since.setdefault(gpu.uuid, min(now_s, max(0.0, gpu.samples[0].at_s)))

    def _process(self, pid: int, now_s: float, known: Dict[Tuple[int, int], _Process]) -> Optional[_Process]:
        """None: hidden, or gone by now."""
        born = self._born(pid) if self._born is not None else None
        stat = self._procs.stat(pid) if born is None or (pid, born) not in self._known else None
        if born is None and stat is None:
            return None
        who = (pid, born if born is not None else stat.born if stat is not None else -1)
        process = known.get(who) or self._known.get(who)
        if process is None:
            process = _Process(stat.name if stat is not None else None, self._procs.uid(pid), now_s)
        known[who] = process
        return process


def terminals(pts: Path, now_utc_s: float) -> Optional[Dict[int, Optional[float]]]:
    """
    Users with a terminal, and the seconds since somebody last typed into one of theirs. None for the seconds: its clock is
    ahead of ours; None in all: terminals cannot be listed.
    """
    try:
        names = [name for name in os.listdir(pts) if name.isdigit()]
    except OSError:
        return None
    idle: Dict[int, Optional[float]] = {}
    for name in names[:_MOST_TERMINALS]:
        try:
            seen = os.stat(os.path.join(str(pts), name))
        except OSError:
            continue  # closed meanwhile
        for_s: Optional[float] = now_utc_s - seen.st_atime
        if for_s is not None and for_s < -_CLOCK_STEP_S:
            for_s = None
        before = idle.get(seen.st_uid)
        if before is None:
            idle[seen.st_uid] = max(0.0, for_s) if for_s is not None else None
        elif for_s is not None:
            idle[seen.st_uid] = min(before, max(0.0, for_s))
    return idle


def people(
    users: Set[int], typed: Optional[Mapping[int, Optional[float]]], names: Names, all_users: bool = True
) -> Optional[Tuple[Person, ...]]:
    """
    Who may care: users with a process on a GPU, then those who typed within a day, the latest first. None: nobody was found,
    and there may be somebody: terminals cannot be listed, or not all who are on a GPU are known (``all_users``).
    """
    idle = typed or {}
    found = [Person(names.of(uid), uid, "gpu", idle.get(uid)) for uid in sorted(users)]
    recent = sorted((s, uid) for uid, s in idle.items() if uid not in users and s is not None and s <= RECENT_S)
    found += [Person(names.of(uid), uid, "login", idle_s) for idle_s, uid in recent]
    return tuple(found[:MOST_PEOPLE]) if found or (all_users and typed is not None) else None


class ProcWork:
    """
    The real work source: jobs and holders at each beat, people a few times a minute, who works here and where their GPUs are
    connected to twice a minute; of a machine whose GPUs compute, every third minute, since that it works is known.
    """

    def __init__(
        self,
        clock: Clock,
        jobs: Jobs,
        holders: Holders,
        names: Names,
        pts: Path = PTS,
        people_every_s: float = PEOPLE_EVERY_S,
        presence: Optional[Presence] = None,
        links: Optional[LinkLook] = None,
        presence_every_s: float = PRESENCE_EVERY_S,
    ) -> None:
        self._clock, self._jobs, self._holders, self._names, self._pts = clock, jobs, holders, names, pts
        self._every_s = people_every_s
        self._people: Optional[Tuple[Person, ...]] = None
        self._people_at_s = float("-inf")
        self._look_at_presence, self._look_at_links, self._presence_every_s = presence, links, presence_every_s
        self._presence: Optional[PresenceReading] = None
        self._links: Optional[Links] = None
        self._presence_at_s = float("-inf")
        self._computed = False  # since the last look at presence
        self._looked = 0

    def look(self, snapshot: GpuSnapshot) -> WorkReading:
        now_s = self._clock.boot_s()
        self._computed = self._computed or any(sample.ratio >= COMPUTES for gpu in snapshot.gpus for sample in gpu.samples)
        jobs: Optional[Tuple[JobReading, ...]] = self._jobs.look(snapshot.gpus, now_s, _whole(snapshot))
        # The first two looks read every process: they come early, and all later ones only what changed.
        seldom = self._computed and self._looked >= 2
        due = now_s - self._presence_at_s >= self._presence_every_s * (BUSY_SELDOMER if seldom else 1)
        if due or self._jobs.wants_clients:
            self._presence_at_s, self._computed, self._looked = now_s, False, self._looked + 1
            self._look_around(snapshot, now_s)
        holders = self._holders.look(snapshot.gpus, now_s)
        if now_s - self._people_at_s >= self._every_s:
            self._people_at_s = now_s
            listed = _whole(snapshot) and all(gpu.processes is not None and gpu.processes <= len(gpu.pids) for gpu in snapshot.gpus)
            typed = terminals(self._pts, self._clock.utc().timestamp())
            self._people = people(self._holders.users(), typed, self._names, listed and self._holders.all_known())
        return WorkReading(jobs, holders, self._people, self._presence, self._links)

    def _look_around(self, snapshot: GpuSnapshot, now_s: float) -> None:
        """What breaks here costs neither jobs nor holders: it is told as not seen."""
        if self._look_at_presence is not None:
            try:
                self._presence = self._look_at_presence.look(now_s, self._clock.utc().timestamp())
                self._jobs.note_clients(self._look_at_presence.clients)
            except Exception as error:  # noqa: BLE001  whatever a process may look like, the others are still to be told
                self._presence = PresenceReading(now_s, unread=("who works here (%s)" % type(error).__name__,))
        if self._look_at_links is not None:
            try:
                self._links = self._look_at_links.look([pid for gpu in snapshot.gpus for pid in gpu.pids])
            except Exception:  # noqa: BLE001
                self._links = Links(whole=False)


def _whole(snapshot: GpuSnapshot) -> bool:
    """Whether all GPUs are in it: a job could use one that the driver does not hand out."""
    return snapshot.state in (OK, NO_GPU) and (snapshot.count is None or len(snapshot.gpus) >= snapshot.count)
