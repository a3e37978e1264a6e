"""
The jobs that use the GPUs: which live, which have ended, and whether something lives that could start the next process.

A job is the control group, else the session, of processes that hold a GPU. It has ended when none of them has been left
for a minute and its launcher is gone too; a job whose launcher lives has not ended, and one whose launcher cannot be
looked for is never said to have. Jobs are remembered over a restart of the agent within one boot, if it is given where;
else what ended before is not known to us.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from agent.job_memory import AWAY_S, JobMemory
from agent.launchers import Ancestors, Found, Launchers
from agent.procs import Procs, Stat
from agent.readings import GpuReading, JobReading

SETTLE_S = 60.0
FORGET_S = 72 * 3600.0
MOST_JOBS = 48
MOST_TOLD = 12
MOST_ENDED_TOLD = 3
_MOST_ANCESTORS = 128
_MOST_SCANNED = 16384
_MOST_LABEL = 80
MOST_CLIENTS = 16
_CONTAINER = re.compile(r"docker|libpod|podman|containerd|nerdctl|crio|kubepods")
_LONG_HEX = re.compile(r"([0-9a-f]{12})[0-9a-f]{20,}")
# How often a launcher is looked for: in a control group, which lists its members; and where all processes must be asked.
LOOK_S, SCAN_S = 15.0, 60.0

_Born = Callable[[int], Optional[int]]
_Identity = Tuple[int, int]  # pid and birth: a pid alone may be another's by now


@dataclass
class _Job:
    """
    One job. ``group`` is the path of its control group, ``session`` what stands for it where it has none; neither:
    a process that the driver names and we cannot see. ``ended_s`` and ``launcher`` are as in `JobReading`.
    """

    label: str
    began_s: float
    hierarchy: Optional[str] = None
    group: Optional[str] = None
    folder: Optional[str] = None
    session: Optional[int] = None
    processes: Set[_Identity] = field(default_factory=set)
    ancestors: Dict[_Identity, None] = field(default_factory=dict)
    whole: bool = True  # every ancestor of every process was seen
    ended_s: Optional[float] = None  # of its last GPU process, or of its launcher where that came later
    gpu_ended_s: float = 0.0
    launcher: Optional[str] = None
    known: Optional[bool] = None  # None: not looked since its last GPU process ended
    looked_s: float = float("-inf")
    contained: bool = False  # in a container, of which who asked for it is no ancestor

    @property
    def visible(self) -> bool:
        return self.group is not None or self.session is not None


class Jobs:
    """
    Looks once a beat. ``born``: the birth of a process, where another source has just read it. ``settle_s``: how long
    none of its processes may be left before a job can have ended (shorter than a minute only beside a reaper on loopback).
    """

    def __init__(
        self, procs: Procs, launchers: Launchers, settle_s: float = SETTLE_S, born: Optional[_Born] = None, memory: Optional[JobMemory] = None
    ) -> None:
        self._procs, self._launchers, self._settle_s = procs, launchers, settle_s
        self._born: _Born = born if born is not None else self._ask_birth
        self._jobs: Dict[str, _Job] = {}
        self._of: Dict[_Identity, str] = {}  # the GPU processes of now
        self._hidden: Set[int] = set()  # listed at the last look and not to be seen
        self._memory, self._saved, self._saved_ends = memory, "", "[]"
        self._begun = False
        self._clients: Tuple[Ancestors, ...] = ()  # of what starts containers, itself first
        self.wants_clients = False  # a job in a container came since they were last told

    def note_clients(self, pids: Sequence[int]) -> None:
        """
        Processes that start containers for somebody who waits (`docker run`), as they live now. A container's parent is its
        keeper, so the shell that starts one after the other is found through them alone; of which container, nobody says.
        """
        self.wants_clients = False
        found = []
        for pid in pids[:MOST_CLIENTS]:
            stat = self._procs.stat(pid)
            if stat is not None and stat.lives:
                above = self._launchers.ancestors(pid)
                found.append(Ancestors(((pid, stat.born), *above.chain), above.whole))
        self._clients = tuple(found)
        for job in self._jobs.values():
            if job.contained and job.processes:
                self._add_clients(job)

    def _add_clients(self, job: _Job) -> None:
        for client in self._clients:
            job.whole = job.whole and client.whole
            for who in client.chain:
                job.ancestors.setdefault(who)
        if len(job.ancestors) > _MOST_ANCESTORS:
            self._drop_dead_ancestors(job)

    def look(self, gpus: Sequence[GpuReading], now_s: float, whole: bool = True) -> Optional[Tuple[JobReading, ...]]:
        """
        The jobs now. ``whole``: these are all the GPUs there are. None: a process list could not be read, so a job could
        be hidden from us.
        """
        if not self._begun:
            self._begun = True
            self._remember(now_s)
        complete = whole and all(gpu.processes is not None for gpu in gpus)
        here = self._here(gpus, now_s)
        if not complete:  # one that is not listed has ended only if it is no more
            here.update({who: key for who, key in self._of.items() if who not in here and self._still(who)})
        self._of = here
        living: Dict[str, Set[_Identity]] = {}
        for who, key in here.items():
            living.setdefault(key, set()).add(who)
        for key, job in self._jobs.items():
            self._turn(job, living.get(key, set()), now_s)
        self._look_for_launchers(now_s)
        self._forget(now_s)
        self._save(now_s)
        return self._told() if complete else None

    # --- who is here ---

    def _here(self, gpus: Sequence[GpuReading], now_s: float) -> Dict[_Identity, str]:
        here: Dict[_Identity, str] = {}
        hidden: Set[int] = set()
        for pid in {pid for gpu in gpus for pid in gpu.pids}:
            born = self._born(pid)
            if born is None:
                hidden.add(pid)
                continue
            who = (pid, born)
            key = self._of.get(who) or self._place(who, now_s)
            if key is not None:
                here[who] = key
        for gpu in gpus:
            if (gpu.processes or 0) > len(gpu.pids):
                hidden.add(0)  # an entry of the driver that makes no sense: somebody, and we cannot see who
        for pid in hidden & self._hidden:  # seen twice: it is not one that was just ending
            key = "hidden-%d" % pid
            self._jobs.setdefault(key, _Job(key, now_s, whole=False))
            here[(pid, -1)] = key
        self._hidden = hidden
        return here

    def _place(self, who: _Identity, now_s: float) -> Optional[str]:
        """The job that a process we have not met belongs to. None: it ended just now."""
        pid, born = who
        stat = self._procs.stat(pid)
        if stat is None or stat.born != born:
            return None
        began_s = min(born / self._procs.ticks_per_s, now_s)
        placed = self._procs.group_path(pid)
        key = "%s:%s" % placed if placed is not None else "session:%d" % stat.session
        job = self._jobs.get(key)
        if job is None or _over(self._reading(job)):  # not the next process of a sweep, but a new job
            job = self._jobs[key] = self._new(pid, stat, placed, began_s)
        ancestors = self._launchers.ancestors(pid)
        job.whole = job.whole and ancestors.whole
        for ancestor in ancestors.chain:
            job.ancestors.setdefault(ancestor)
        if len(job.ancestors) > _MOST_ANCESTORS:
            self._drop_dead_ancestors(job)
        if self._launchers.contained(ancestors) or (placed is not None and _CONTAINER.search(placed[1]) is not None):
            job.contained = self.wants_clients = True
            self._add_clients(job)
        return key

    def _new(self, pid: int, stat: Stat, placed: Optional[Tuple[str, str]], began_s: float) -> _Job:
        if placed is None:
            return _Job("session-%d@%d" % (stat.session, began_s), began_s, session=stat.session)
        hierarchy, path = placed
        group = self._procs.group(pid)
        name = _LONG_HEX.sub(r"\1", path.rstrip("/").rsplit("/", 1)[-1])  # a container's id is known by its first 12 digits
        label = "%s@%d" % (name[:_MOST_LABEL], began_s)
        return _Job(label, began_s, hierarchy, path, group.folder if group is not None else None)

    def _drop_dead_ancestors(self, job: _Job) -> None:
        job.ancestors = {who: None for who in job.ancestors if self._still(who)}
        if len(job.ancestors) > _MOST_ANCESTORS:  # so many living ones cannot all be kept; what is dropped is not known
            job.ancestors = dict(list(job.ancestors.items())[:_MOST_ANCESTORS])
            job.whole = False

    # --- what became of it ---

    def _turn(self, job: _Job, living: Set[_Identity], now_s: float) -> None:
        if living:
            job.processes, job.ended_s, job.launcher, job.known = living, None, None, None
            return
        if job.processes:
            job.processes = set()
            job.ended_s = job.gpu_ended_s = now_s

    def _look_for_launchers(self, now_s: float) -> None:
        ended = [job for job in self._jobs.values() if job.ended_s is not None and job.visible]
        due = [job for job in ended if self._due(job, now_s)]
        scan = None
        if any(job.folder is None for job in due):
            # All processes are asked once for all of these jobs, so that they fall due together from then on.
            scan = self._scan()
            due = [job for job in ended if job.folder is None or job in due]
        for job in due:
            self._look_for_launcher(job, self._members(job, scan), now_s)

    def _due(self, job: _Job, now_s: float) -> bool:
        settled_s = job.gpu_ended_s + self._settle_s
        if job.looked_s < settled_s <= now_s:
            return True
        every_s = min(LOOK_S if job.folder is not None else SCAN_S, self._settle_s)
        return now_s - job.looked_s >= (every_s if job.looked_s < settled_s or job.launcher is not None else 4 * every_s)

    def _look_for_launcher(self, job: _Job, members: Optional[List[int]], now_s: float) -> None:
        found = self._launchers.look(job.ancestors, members)
        found = found if job.whole or found.name is not None else Found(None, False)
        if found.name is None and found.known and (job.launcher is not None or job.known is False):
            job.ended_s = now_s  # it ended with its launcher, of which this is the first moment that we know it gone
        job.launcher, job.known, job.looked_s = found.name, found.known, now_s

    def _members(self, job: _Job, scan: Optional[Dict[int, int]]) -> Optional[List[int]]:
        """The living of its group, GPU process or not. ``scan``: all processes with their sessions."""
        if job.folder is not None:
            return self._procs.members(job.folder)
        if scan is None:
            return None
        if job.session is not None:
            return [pid for pid, session in scan.items() if session == job.session]
        return [pid for pid in scan if self._procs.group_path(pid) == (job.hierarchy, job.group)]

    def _scan(self) -> Optional[Dict[int, int]]:
        pids = self._procs.pids()
        if pids is None or len(pids) > _MOST_SCANNED:
            return None
        stats = ((pid, self._procs.stat(pid)) for pid in pids)
        return {pid: stat.session for pid, stat in stats if stat is not None}

    def _still(self, who: _Identity) -> bool:
        """Whether this very process is there. One that we never could see may be."""
        if who[1] < 0:
            return True
        stat = self._procs.stat(who[0])
        return stat is not None and stat.born == who[1] and stat.lives

    def _ask_birth(self, pid: int) -> Optional[int]:
        stat = self._procs.stat(pid)
        return stat.born if stat is not None else None

    # --- what is kept over a restart of the agent ---

    def _remember(self, now_s: float) -> None:
        """
        What was saved, as if it had been seen a moment ago. After more than a restart's absence something may have run in
        a group meanwhile, so that every end counts from now.
        """
        if self._memory is None:
            return
        alive_s = self._memory.last_alive_s()
        away = alive_s is None or not 0.0 <= now_s - alive_s <= AWAY_S
        for saved in self._memory.load()[:MOST_JOBS]:
            try:
                key, job = str(saved["key"]), _job_of(saved)
            except (KeyError, TypeError, ValueError):
                continue
            if job.ended_s is not None and (away or not job.gpu_ended_s <= job.ended_s <= now_s):
                job.ended_s = job.gpu_ended_s = now_s
            self._jobs[key] = job
            self._of.update(dict.fromkeys(job.processes, key))

    def _save(self, now_s: float) -> None:
        if self._memory is None:
            return
        kept = {key: job for key, job in self._jobs.items() if job.visible}
        state = repr([(key, job.ended_s, job.launcher, job.known, job.whole, len(job.ancestors), sorted(job.processes)) for key, job in kept.items()])
        ends = "%r" % [(key, job.ended_s, job.launcher, job.known) for key, job in kept.items() if job.ended_s is not None]
        if state == self._saved:
            return
        at_once = ends != self._saved_ends
        if self._memory.save([_saved(key, job) for key, job in kept.items()], now_s, at_once):
            self._saved, self._saved_ends = state, ends

    # --- what is told, and what is forgotten ---

    def _told(self) -> Tuple[JobReading, ...]:
        """Those that keep the machine first: living, with a living or unknown launcher; then the newest that ended."""
        told = [self._reading(job) for job in sorted(self._jobs.values(), key=_by_end)]
        keeping = [job for job in told if not _over(job)][:MOST_TOLD]
        return (*keeping, *[job for job in told if _over(job)][:MOST_ENDED_TOLD])

    def _reading(self, job: _Job) -> JobReading:
        if job.ended_s is None:
            return JobReading(job.label)
        settled = job.looked_s >= job.gpu_ended_s + self._settle_s
        # Before it settled, a launcher that was not found may still be about to show itself.
        known = False if not job.visible or job.known is False else (True if settled or job.launcher is not None else None)
        return JobReading(job.label, job.ended_s, job.launcher, known)

    def _forget(self, now_s: float) -> None:
        ended = {key: job for key, job in self._jobs.items() if job.ended_s is not None}
        for key, job in ended.items():
            if now_s - (job.ended_s or 0.0) > FORGET_S:
                del self._jobs[key]
        over = len(self._jobs) - MOST_JOBS
        if over > 0:
            # First what ended and is known to have, oldest first; a job of which that is not known is the last to go.
            rest = [key for key in ended if key in self._jobs]
            rest.sort(key=lambda key: (self._jobs[key].known is not True or self._jobs[key].launcher is not None, ended[key].ended_s))
            for key in rest[:over]:
                del self._jobs[key]


def _saved(key: str, job: _Job) -> Mapping[str, Any]:
    return {**vars(job), "key": key, "processes": sorted(job.processes), "ancestors": list(job.ancestors), "looked_s": None}


def _job_of(saved: Mapping[str, Any]) -> _Job:
    """Raises KeyError, TypeError or ValueError for what is no job of ours."""
    texts: Dict[str, Any] = {name: saved[name] if saved[name] is None else str(saved[name]) for name in ("hierarchy", "group", "folder", "launcher")}
    job = _Job(
        label=str(saved["label"]),
        began_s=float(saved["began_s"]),
        session=None if saved["session"] is None else int(saved["session"]),
        processes={(int(pid), int(born)) for pid, born in saved["processes"]},
        ancestors={(int(pid), int(born)): None for pid, born in saved["ancestors"]},
        whole=saved["whole"] is True,
        contained=saved.get("contained") is True,
        ended_s=None if saved["ended_s"] is None else float(saved["ended_s"]),
        gpu_ended_s=float(saved["gpu_ended_s"]),
        known=saved["known"] if isinstance(saved["known"], bool) else None,
        **texts,
    )
    if not job.visible or (job.ended_s is None) != bool(job.processes):
        raise ValueError("neither living nor ended")
    return job


def _over(job: JobReading) -> bool:
    return job.ended_s is not None and job.launcher is None and job.launcher_known is True


def _by_end(job: _Job) -> Tuple[float, str]:
    return (-job.ended_s if job.ended_s is not None else float("-inf"), job.label)
