"""A temporary /proc and /sys/fs/cgroup of a few processes, as a machine with one ssh login shows them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional, Sequence

from agent.procs import Procs

HZ = 100
LOGIN = "/user.slice/user-1000.slice/session-3.scope"
INIT, SSHD, DOOR, SHELL = 1, 300, 310, 311


class _Procs(Procs):
    """The folders of a made-up /proc belong to whoever runs the tests."""

    def owner(self, pid: int) -> Optional[int]:
        return self.uid(pid)


class FakeMachine:
    """
    ``root``/proc and ``root``/cgroup. The version 2 hierarchy unless ``hierarchy`` names another. At first: init, sshd, the
    door of one login and its shell at the prompt.
    """

    def __init__(self, root: Path, hierarchy: str = "") -> None:
        self.proc, self.cgroup, self.hierarchy = root / "proc", root / "cgroup", hierarchy
        for folder in (self.proc / "self" / "ns", self.cgroup):
            folder.mkdir(parents=True)
        os.symlink("pid:[4026531836]", self.proc / "self" / "ns" / "pid")
        self.process(INIT, "systemd", parent=0, cgroup="/init.scope")
        self.process(SSHD, "sshd", parent=INIT, cgroup="/system.slice/ssh.service")
        self.process(DOOR, "sshd", parent=SSHD)
        self.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",))

    @property
    def procs(self) -> Procs:
        return _Procs(self.proc, self.cgroup, HZ)

    def process(
        self,
        pid: int,
        name: str = "python",
        parent: int = SHELL,
        cgroup: str = LOGIN,
        session: int = SHELL,
        state: str = "S",
        terminal: bool = False,
        foreground: Optional[int] = None,
        args: Sequence[str] = ("python", "train.py"),
        stdin: Optional[str] = "/dev/pts/0",
        uid: int = 1000,
        born_s: float = 500.0,
        group: Optional[int] = None,
        namespaced: Optional[int] = None,
        ticks: int = 0,
        reaped: int = 0,
        number: int = 0,
        sleeps_in: Optional[str] = None,
        call: Optional[str] = None,
        io_bytes: Optional[int] = None,
        environment: Optional[Sequence[str]] = None,
        children: Optional[Sequence[int]] = None,
    ) -> None:
        """
        ``foreground``: the process group in the foreground of its terminal (its own, unless given), which is the one of that
        ``number``. ``ticks`` of its own, ``reaped`` those of its children that ended. ``io_bytes`` through read calls.
        """
        self.end(pid)
        home = self.proc / str(pid)
        (home / "fd").mkdir(parents=True)
        own = group if group is not None else pid
        fields = ["0"] * 50
        fields[0], fields[1], fields[2], fields[3], fields[19] = state, str(parent), str(own), str(session), str(int(born_s * HZ))
        fields[4] = str(34816 + number) if terminal else "0"
        fields[11], fields[13] = str(ticks), str(reaped)
        fields[5] = str((foreground if foreground is not None else own) if terminal else -1)
        (home / "stat").write_text("%d (%s) %s\n" % (pid, name, " ".join(fields)))
        inner = "\t%d" % namespaced if namespaced is not None else ""
        (home / "status").write_text("Name:\t%s\nUid:\t%d\t%d\t%d\t%d\nNSpid:\t%d%s\n" % (name.encode("unicode_escape").decode(), uid, uid, uid, uid, pid, inner))
        (home / "cmdline").write_bytes(b"\0".join(a.encode() for a in args) + b"\0" if args else b"")
        if sleeps_in is not None:
            (home / "wchan").write_text(sleeps_in)
        if children is not None:
            (home / "task" / str(pid)).mkdir(parents=True)
            (home / "task" / str(pid) / "children").write_text("".join("%d " % child for child in children))
        if call is not None:
            (home / "syscall").write_text(call + "\n")
        if io_bytes is not None:
            (home / "io").write_text("rchar: %d\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n" % io_bytes)
        if environment is not None:
            (home / "environ").write_bytes(b"".join(entry.encode() + b"\0" for entry in environment))
        (home / "cgroup").write_text("%s:%s:%s\n" % ("0" if self.hierarchy == "" else "7", self.hierarchy, cgroup))
        if stdin is not None:
            os.symlink(stdin, home / "fd" / "0")
        self._join(pid, cgroup)

    def end(self, pid: int) -> None:
        if not (self.proc / str(pid)).is_dir():
            return
        shutil.rmtree(self.proc / str(pid))
        for members in self.cgroup.rglob("cgroup.procs"):
            left = [line for line in members.read_text().split() if line != str(pid)]
            members.write_text("".join("%s\n" % line for line in left))

    def folder(self, cgroup: str) -> Path:
        base = self.cgroup / self.hierarchy.replace("name=", "") if self.hierarchy else self.cgroup
        return base / cgroup.lstrip("/")

    def _join(self, pid: int, cgroup: str) -> None:
        folder = self.folder(cgroup)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "cgroup.procs", "a") as file:
            file.write("%d\n" % pid)
