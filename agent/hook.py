"""
The other end of `loader_hook`: what jobs tell of their own waiting, taken from a local datagram socket at each beat.

The agent obeys nobody: what comes in is five numbers, which become two more figures of a report, and nothing else. Who
speaks is what the kernel says (SO_PASSCRED), never what the datagram says, so that a process speaks for itself alone;
from a container the kernel gives the process's number as we see it. Size, number of senders and rate are bounded, and
what is malformed is counted and dropped. Nothing is ever sent back, and no beat waits for anybody.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import stat
import struct
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from agent.datapath import Exact
from agent.loader import MOST_OFF_GPU
from agent.loader_hook import DATAGRAM, MAGIC
from agent.readings import GpuReading, LoaderSource, Log, TreeReading

MOST_BYTES = 256  # of a datagram: a longer one is none of ours
MOST_DATAGRAMS = 1024  # taken at one beat; the kernel drops what does not fit into its own queue
MOST_SENDERS, MOST_OF_A_USER = 256, 128
MOST_A_SECOND = 2.0
FORGET_S, MAY_GO_AFTER_S = 3600.0, 60.0  # a silent one is forgotten; sooner where others need its place
MOST_LATE_S = 120.0  # that one look makes up for: what was told later than that is not this window's
# What a sender that has fallen silent is believed: to be still in the next() it last told of, for so long and no longer (it
# may have come out and had no reason to tell); and to be at work, for as long as its next datagram could not go yet.
INSIDE_FOR_S, OUTSIDE_FOR_S = 1800.0, 1.0

_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size)
_SKEW_S = 60.0


class Datagram(NamedTuple):
    """What one says, with the pid and uid that the kernel vouches for."""

    pid: int
    uid: int
    inside: bool
    run: int
    at_s: float  # CLOCK_MONOTONIC of the sender
    wait_s: float
    batches: int


class Malformed(ValueError):
    """It is none of ours. Counted by its words, which are our own."""


def read(body: bytes, pid: int, uid: int) -> Datagram:
    """Raises Malformed. What comes behind the fields we know is a newer hook's, and ignored."""
    if len(body) > MOST_BYTES:
        raise Malformed("too long")
    if len(body) < DATAGRAM.size:
        raise Malformed("too short")
    if pid <= 0:  # of a process that we cannot see
        raise Malformed("nobody's")
    magic, flags, run, at_s, wait_s, batches = DATAGRAM.unpack_from(body)
    if magic != MAGIC:
        raise Malformed("not ours")
    if not (math.isfinite(at_s) and math.isfinite(wait_s) and 0.0 <= wait_s <= at_s < 1e10 and batches < 2**62):
        raise Malformed("no such figures")
    return Datagram(pid, uid, bool(flags & 1), run, at_s, wait_s, batches)


class Socket:
    """The socket at one path. `open` never raises: without it the agent only knows less."""

    def __init__(self, path: Path, log: Log) -> None:
        self._path, self._log = path, log
        self._socket: Optional[socket.socket] = None
        self._inode: Optional[int] = None

    def open(self) -> bool:
        """False: not to be had; why is in the log."""
        try:
            if not self._path.parent.is_dir():
                self._path.parent.mkdir()
                os.chmod(self._path.parent, 0o755)  # whatever the umask is: jobs of all users have to reach it
            if not self._make_room():
                return False
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # before anybody can send
                made.bind(str(self._path))
                os.chmod(self._path, 0o666)  # everybody's jobs; who it is the kernel says
                self._inode = os.stat(self._path).st_ino
            except OSError:
                made.close()
                raise
        except (OSError, ValueError) as error:
            self._log.warning("hook socket not opened", path=str(self._path), because=str(error), lost="what jobs tell of their own waiting")
            return False
        self._socket = made
        return True

    def _make_room(self) -> bool:
        """A socket that nobody reads is an earlier agent's, and goes. One that somebody reads, and what is no socket, stays."""
        try:
            kind = os.lstat(self._path).st_mode
        except FileNotFoundError:
            return True
        if stat.S_ISSOCK(kind):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
                try:
                    probe.connect(str(self._path))
                except ConnectionRefusedError:
                    os.unlink(self._path)
                    return True
        because = "another agent reads it" if stat.S_ISSOCK(kind) else "it is no socket"
        self._log.warning("hook socket not opened", path=str(self._path), because=because, lost="what jobs tell of their own waiting")
        return False

    def take(self) -> Tuple[List[Tuple[bytes, int, int]], int]:
        """What has come: body, pid and uid of each; and how many came without credentials. Waits for nothing."""
        came: List[Tuple[bytes, int, int]] = []
        unsigned = 0
        while self._socket is not None and len(came) + unsigned < MOST_DATAGRAMS:
            try:
                # One byte more than the most, so that what is cut off is longer than the most.
                body, ancillary, _, _ = self._socket.recvmsg(MOST_BYTES + 1, _ANCILLARY, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._log.warning("hook socket lost", because=str(error))
                self.close()
                break
            who = _sender(ancillary)
            if who is None:
                unsigned += 1
            else:
                came.append((body, *who))
        return came, unsigned

    def close(self) -> None:
        """Also takes the path away, if it is still ours: a job then sees at once that nobody listens."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)


def _sender(ancillary: Sequence[Tuple[int, int, bytes]]) -> Optional[Tuple[int, int]]:
    """Nobody who is asked for credentials can hand us descriptors: those would lie beside them, and there is no room for any."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack(data)
            return pid, uid
    return None


@dataclass
class _Sender:
    """One run of one process. ``credited``: covered and waited seconds that reports have been told of since ``first``."""

    uid: int
    first: Datagram
    last: Datagram
    heard_s: float
    credited: Tuple[float, float] = (0.0, 0.0)
    told: int = 0  # batches
    allowance: float = MOST_A_SECOND


class Waits:
    """
    From datagrams to what each process waited, look by look. Sums since the run began arrive, so nothing is lost with a
    datagram; what a silence was believed and turned out otherwise is taken back from what comes next.
    """

    def __init__(self) -> None:
        self._senders: Dict[int, _Sender] = {}
        self.dropped: Dict[str, int] = {}

    def drop(self, why: str, number: int = 1) -> None:
        if number:
            self.dropped[why] = self.dropped.get(why, 0) + number

    def take(self, said: Datagram, now_s: float) -> None:
        """``now_s``: CLOCK_MONOTONIC at this look, by which the datagram's own moment is placed."""
        if not -_SKEW_S <= said.at_s - now_s <= 1.0:
            said = said._replace(at_s=now_s)  # a clock of its own (a time namespace): it is as of now
        known = self._senders.get(said.pid)
        if known is None or known.last.run != said.run:
            if known is None and not self._room(said.uid, now_s):
                self.drop("too many senders")
                return
            # What it says first reaches back to before we knew it.
            self._senders[said.pid] = _Sender(said.uid, said, said, now_s, told=said.batches)
            return
        if known.allowance < 1.0:
            self.drop("too often")
            return
        gap_s = said.at_s - known.last.at_s
        if gap_s < 0.0 or said.batches < known.last.batches or not -1e-3 <= said.wait_s - known.last.wait_s <= gap_s + 1.0:
            self.drop("contradicts itself")
            return
        known.last, known.heard_s, known.allowance = said, now_s, known.allowance - 1.0

    def _room(self, uid: int, now_s: float) -> bool:
        """For one more. The one that was silent for the longest goes first: of a user who has enough, else of all."""
        own = [pid for pid, sender in self._senders.items() if sender.uid == uid]
        if len(own) < MOST_OF_A_USER and len(self._senders) < MOST_SENDERS:
            return True
        among = own if len(own) >= MOST_OF_A_USER else list(self._senders)
        oldest = min(among, key=lambda pid: self._senders[pid].heard_s)
        if now_s - self._senders[oldest].heard_s < MAY_GO_AFTER_S:
            return False
        del self._senders[oldest]
        return True

    def look(self, now_s: float, since_s: float, lives: Callable[[int], bool]) -> Tuple[Exact, ...]:
        """What was added since the look before, which was ``since_s`` seconds ago. ``lives`` is asked only of those that fell silent in a next()."""
        found = []
        for pid, sender in list(self._senders.items()):
            sender.allowance = min(sender.allowance + MOST_A_SECOND * since_s, MOST_A_SECOND * max(since_s, 1.0) + 1.0)
            silent_s = now_s - sender.last.at_s
            if silent_s > FORGET_S:
                del self._senders[pid]
                continue
            if sender.last.inside and silent_s > 2 * OUTSIDE_FOR_S and not lives(pid):
                sender.last = sender.last._replace(inside=False)
            covered, waited = _believed(sender, silent_s)
            more_covered = max(0.0, covered - sender.credited[0])
            more_waited = min(max(0.0, waited - sender.credited[1]), more_covered)
            batches = sender.last.batches - sender.told
            sender.credited = max(covered, sender.credited[0]), sender.credited[1] + more_waited
            sender.told = sender.last.batches
            if more_covered > 0.0:
                scale = min(1.0, MOST_LATE_S / more_covered)
                found.append(Exact(pid, more_covered * scale, more_waited * scale, batches))
        return tuple(found)


def _believed(sender: _Sender, silent_s: float) -> Tuple[float, float]:
    """Covered and waited seconds since its first datagram, with what its silence is believed."""
    covered = sender.last.at_s - sender.first.at_s
    waited = sender.last.wait_s - sender.first.wait_s
    if sender.first.inside:  # the wait it began to tell of with ended after we knew it, and is in the sum
        waited = min(waited, covered)
    silent_s = max(0.0, silent_s)
    if sender.last.inside:
        return covered + min(silent_s, INSIDE_FOR_S), waited + min(silent_s, INSIDE_FOR_S)
    return covered + min(silent_s, OUTSIDE_FOR_S), waited


class HookedLoaders:
    """A loader source that adds to another's trees what their processes told of themselves."""

    def __init__(
        self,
        loaders: LoaderSource,
        door: Socket,
        log: Log,
        lives: Callable[[int], bool] = lambda pid: os.path.exists("/proc/%d" % pid),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loaders, self._door, self._log, self._lives, self._now_s = loaders, door, log, lives, now_s
        self._waits = Waits()
        self._looked_s = now_s()
        self._complained: Set[str] = set()

    def look(self, gpus: Sequence[GpuReading]) -> Optional[Tuple[TreeReading, ...]]:
        trees = self._loaders.look(gpus)
        told = self._told()
        if trees is None or not told:
            return trees
        holders = {pid for gpu in gpus for pid in gpu.pids}
        by_pid = {one.pid: replace(one, holds=one.pid in holders) for one in told}
        joined = []
        for tree in trees:
            theirs = tuple(by_pid.pop(pid) for pid in tree.members if pid in by_pid)
            joined.append(replace(tree, exact=theirs) if theirs else tree)
        alone = sorted(by_pid.values(), key=lambda one: (-one.wait_s, one.pid))[:MOST_OFF_GPU]
        return (*joined, *(TreeReading("pid-%d" % one.pid, (), exact=(one,)) for one in alone))

    def _told(self) -> Tuple[Exact, ...]:
        now_s = self._now_s()
        came, unsigned = self._door.take()
        self._waits.drop("unsigned", unsigned)
        for body, pid, uid in came:
            try:
                self._waits.take(read(body, pid, uid), now_s)
            except Malformed as error:
                self._waits.drop(str(error))
        told = self._waits.look(now_s, now_s - self._looked_s, self._lives)
        self._looked_s = now_s
        for why, number in self._waits.dropped.items():
            if why not in self._complained:  # once of a kind: somebody may mean to fill the log
                self._complained.add(why)
                self._log.warning("hook datagrams dropped", because=why, number=number)
        return told

    @property
    def dropped(self) -> Dict[str, int]:
        """Datagrams dropped since the start, by why."""
        return dict(self._waits.dropped)
