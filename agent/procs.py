"""
What /proc and the control groups say of a process: small reads, None for whatever is gone or hidden.

The roots are arguments, so that a temporary tree stands in for a machine. Only `arguments` can wait for a process that
hangs (it needs that process's memory map), so it is asked of shells alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from agent.listing import Listing

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")

# The kernel's own pid namespace has this inode in every kernel (PROC_PID_INIT_INO): there pid 1 is the machine's init.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_MOST_FOLDERS = 256
_PIECE, _MOST_BYTES = 4096, 65536
# Hierarchies of control groups, version 1, in which a job can have one of its own; "" is version 2.
_HIERARCHIES = ("", "name=systemd", "pids", "devices", "freezer", "cpuset")
_SLURM_JOB = re.compile(r"^.*?/job_\d+")


class Stat(NamedTuple):
    """One line of /proc/PID/stat. ``born``: ticks after boot; with the pid it names a process for good. See proc_pid_stat(5)."""

    name: str
    state: str
    parent: int
    group: int
    session: int
    terminal: int  # 0: none
    foreground: int  # the process group in the foreground of its terminal, -1: none
    ticks: int
    born: int
    delayed: Optional[int] = None  # ticks of waiting for block devices; 0 for ever where the kernel does not account it
    reaped: int = 0  # ticks of its children that ended and were waited for, and of theirs

    @property
    def lives(self) -> bool:
        return self.state not in ("Z", "X", "x")


class Io(NamedTuple):
    """Counters of /proc/PID/io; see proc_pid_io(5). ``called`` and ``put``: bytes through read and write calls, whatever is behind them."""

    called: Optional[int] = None
    put: Optional[int] = None
    read_calls: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None


_IO = {"rchar:": "called", "wchar:": "put", "syscr:": "read_calls", "read_bytes:": "read_bytes", "write_bytes:": "write_bytes"}


class Group(NamedTuple):
    """A control group of one job: its path, and where its members are listed (None: nowhere that we can read)."""

    path: str
    folder: Optional[str]


class Procs:
    """Reads of one machine. Nothing is remembered."""

    def __init__(self, proc: Path = PROC, cgroup: Path = CGROUP, ticks_per_s: Optional[int] = None) -> None:
        self._proc, self._cgroup = str(proc), str(cgroup)
        self.ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")

    def stat(self, pid: int) -> Optional[Stat]:
        text = self.text("%d/stat" % pid)
        if text is None:
            return None
        # The name may hold blanks, brackets and line ends: the fields begin behind the last bracket.
        begin, end = text.find("("), text.rfind(")")
        rest = text[end + 1 :].split()
        try:
            parent, group, session, terminal, foreground = (int(rest[n]) for n in (1, 2, 3, 4, 5))
            ticks, born = int(rest[11]) + int(rest[12]), int(rest[19])
            delayed = int(rest[39]) if len(rest) > 39 else None
            reaped = int(rest[13]) + int(rest[14])
            return Stat(text[begin + 1 : end], rest[0], parent, group, session, terminal, foreground, ticks, born, delayed, reaped)
        except (IndexError, ValueError):
            return None

    def uid(self, pid: int) -> Optional[int]:
        """Its real user. (The owner of its folder is root where a process made itself undumpable.)"""
        value = self._status(pid, "Uid")
        return int(value[0]) if value and value[0].isdigit() else None

    def owner(self, pid: int) -> Optional[int]:
        """The user to whom its folder belongs, at a fraction of the cost of `uid`: its own, or root where it made itself undumpable."""
        try:
            return os.stat("%s/%d" % (self._proc, pid)).st_uid
        except OSError:
            return None

    def first_of_its_namespace(self, pid: int) -> bool:
        """Whether it is pid 1 of a pid namespace of its own: what a container was started with."""
        value = self._status(pid, "NSpid")
        return value is not None and len(value) > 1 and value[-1] == "1"

    def arguments(self, pid: int) -> Optional[Tuple[str, ...]]:
        text = self.text("%d/cmdline" % pid)
        return tuple(text.rstrip("\0").split("\0")) if text else None

    def reads_from_terminal(self, pid: int) -> Optional[bool]:
        """Whether its standard input is a terminal. None: not allowed to look."""
        try:
            target = os.readlink("%s/%d/fd/0" % (self._proc, pid))
        except OSError:
            return None
        return target.startswith(("/dev/pts/", "/dev/tty", "/dev/console"))

    def terminal_read_at(self, pid: int) -> Optional[float]:
        """
        When something was last read from the terminal on one of its first three descriptors, Unix time. None: none of them is
        one, or it is not allowed to look. A terminal of a container is found by this alone; nothing else is ever asked for.
        """
        for number in (0, 1, 2):
            path = "%s/%d/fd/%d" % (self._proc, pid, number)
            try:
                if os.readlink(path).startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
                    return os.stat(path).st_atime
            except OSError:
                continue
        return None

    def sleeps_in(self, pid: int) -> Optional[str]:
        """The kernel's function in which its main thread sleeps. None: it does not sleep, or it is not allowed to look."""
        where = (self.text("%d/wchan" % pid) or "").strip()
        return where if where not in ("", "0") else None

    def call(self, pid: int) -> Optional[Tuple[str, Tuple[int, ...]]]:
        """
        Number and arguments of the system call that its main thread sleeps in. None: it does not sleep, or it is not allowed to
        look, for which more is needed than for where it sleeps (`ptrace` may be restricted to root). See proc_pid_syscall(5).
        """
        words = (self.text("%d/syscall" % pid) or "").split()
        try:
            return (words[0], tuple(int(word, 16) for word in words[1:7])) if len(words) >= 7 else None
        except ValueError:
            return None

    def threads(self, pid: int) -> Optional[List[int]]:
        """None: the process is gone or hidden."""
        try:
            return [int(name) for name in os.listdir("%s/%d/task" % (self._proc, pid)) if name.isdigit()]
        except OSError:
            return None

    def children_of_thread(self, pid: int, thread: int) -> Optional[List[int]]:
        """None: the thread ended, or this kernel keeps no such lists."""
        text = self.text("%d/task/%d/children" % (pid, thread))
        return [int(child) for child in text.split() if child.isdigit()] if text is not None else None

    def read_bytes(self, pid: int) -> Optional[int]:
        """Bytes this process made storage deliver. None: not allowed to look (another user's process) or gone."""
        text = self.text("%d/io" % pid) or ""
        begin = text.find("\nread_bytes:")
        value = text[begin + 12 :].split("\n", 1)[0].strip() if begin >= 0 else ""
        return int(value) if value.isdigit() else None

    def io(self, pid: int) -> Io:
        """What it read and wrote. All None: not allowed to look (another user's process) or gone."""
        words = (self.text("%d/io" % pid) or "").split()
        if len(words) == 14 and words[8] == "read_bytes:":  # as every kernel writes it; asked of every process of a tree
            return Io(int(words[1]), int(words[3]), int(words[5]), int(words[9]), int(words[11]))
        return Io(**{_IO[name]: int(value) for name, value in zip(words[::2], words[1::2]) if name in _IO and value.isdigit()})

    def pids(self) -> Optional[List[int]]:
        """All that are shown. None when the list is hidden from us."""
        if not self.shows_others():
            return None
        try:
            return [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return None

    def listing(self) -> Listing:
        return Listing(self._proc)

    def shows_others(self) -> bool:
        """Whether the processes of other users are not hidden from us (`hidepid`): then none could be found in the list."""
        return self.text("1/stat") is not None

    def on_the_machine(self) -> bool:
        """Whether pid 1, as we see it, is the machine's init, and not the first process of a container."""
        try:
            return os.readlink(self._proc + "/self/ns/pid") == _INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def group(self, pid: int) -> Optional[Group]:
        """
        The control group that may stand for its job. None: it has none, or only one that it shares with everything
        (the root, a slice, the init's own); then its session stands for the job.
        """
        path = self.group_path(pid)
        if path is None:
            return None
        hierarchy, below = path
        return Group(below, next((f for f in self._folders(hierarchy, below) if os.path.isfile(f + "/cgroup.procs")), None))

    def group_path(self, pid: int) -> Optional[Tuple[str, str]]:
        """(hierarchy, path) of the group of `group`, without looking for its folder."""
        paths: Dict[str, str] = {}
        for line in (self.text("%d/cgroup" % pid) or "").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            for name in controllers.split(","):
                paths.setdefault(name if number != "0" else "", path)
        for name, path in paths.items():
            job = _SLURM_JOB.match(path) if "slurm" in path and ".." not in path.split("/") else None
            if job is not None:
                return name, job.group()  # all steps of one job
        for name in _HIERARCHIES:
            if _stands_for_a_job(paths.get(name, "/")):
                return name, paths[name]
        return None

    def members(self, folder: str) -> Optional[List[int]]:
        """
        The processes of a control group and of all below it; empty when it is gone. None: unreadable, of another
        namespace, or too many groups below it.
        """
        found: List[int] = []
        folders = 0
        unreadable: List[OSError] = []
        for base, _, _ in os.walk(folder, onerror=lambda error: unreadable.append(error)):
            folders += 1
            if folders > _MOST_FOLDERS:
                return None
            try:
                with open(base + "/cgroup.procs", "rb") as file:
                    lines = file.read().split()
            except FileNotFoundError:
                continue  # it went while we looked
            except OSError:
                return None
            if b"0" in lines:
                return None
            found += [int(line) for line in lines if line.isdigit()]
        return None if any(not isinstance(error, FileNotFoundError) for error in unreadable) else found

    def text(self, below: str) -> Optional[str]:
        """At most 64 KiB or so. By the bare calls: a file object costs as much again as such a read."""
        try:
            file = os.open("%s/%s" % (self._proc, below), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            body = part = os.read(file, _PIECE)
            while len(part) == _PIECE and len(body) < _MOST_BYTES:
                part = os.read(file, _PIECE)
                body += part
            return body.decode("utf-8", "replace")
        except OSError:
            return None
        finally:
            os.close(file)

    def _status(self, pid: int, key: str) -> Optional[List[str]]:
        for line in (self.text("%d/status" % pid) or "").splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].split()
        return None

    def _folders(self, hierarchy: str, path: str) -> Tuple[str, ...]:
        if hierarchy == "":
            return (self._cgroup + path, self._cgroup + "/unified" + path)
        return ("%s/%s%s" % (self._cgroup, hierarchy.replace("name=", ""), path),)


def _stands_for_a_job(path: str) -> bool:
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return last != "" and ".." not in path.split("/") and not last.endswith(".slice") and last != "init.scope"
