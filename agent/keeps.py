"""
What people on this machine ask to keep: taken from a local socket, carried in the reports, kept until its own end.

Who asks is what the kernel says of the other end (SO_PEERCRED), never what is written. Nothing but a length and a reason
comes in, both bounded; the reaper's operator decides how long a wish may hold at most. Lengths count on the clock since
boot, so no step of the wall clock moves an end; over a reboot the wall clock stands in, and never makes one later.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import stat
import struct
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from agent.clock import Clock, rfc3339
from agent.readings import Log
from agent.report import Keep, Value
from agent.state import write_json

KEEPS = "keeps.json"
LEAST_S, MOST_S = 60.0, 30 * 86400.0
MOST_REASON = 200
MOST_KEEPS = 8  # people at once; each has one
MOST_BYTES = 4096  # of a request or an answer
_WITHIN_S = 2.0  # one who connects and says nothing is left alone after that
_PEER = struct.Struct("3i")


class Refused(ValueError):
    """The wish cannot be taken; the text says why and what to do."""


@dataclass(frozen=True, eq=False, repr=False)
class Kept(Value):
    """``until_s``: on the clock since boot; ``until_at``: the same moment on the wall, for people and for the next boot."""

    uid: int
    who: str
    reason: str
    until_s: float
    until_at: datetime

    def shown(self) -> Dict[str, Any]:
        return {"who": self.who, "reason": self.reason, "until": rfc3339(self.until_at)}


class Keeps:
    """The wishes in force. Safe for the socket's thread beside the loop's."""

    def __init__(self, folder: Path, boot_id: str, clock: Clock, log: Log, name: Callable[[int], str] = str) -> None:
        self._file, self._boot_id, self._clock, self._log, self._name = folder / KEEPS, boot_id, clock, log, name
        self._lock = threading.Lock()
        self._resource: Optional[str] = None
        self._kept: Dict[int, Kept] = {}
        self._load()

    def ask(self, uid: int, for_s: float, reason: str) -> Kept:
        """Keep for so long from now; a wish of the same user that ends later stands. Raises Refused."""
        if not (math.isfinite(for_s) and LEAST_S <= for_s <= MOST_S):
            raise Refused("%g seconds cannot be asked for: at least 1m, at most 30d; the reaper's operator may allow less" % for_s)
        reason = " ".join(reason.split())
        if not reason or len(reason) > MOST_REASON or not reason.isprintable():
            raise Refused("the reason must be 1 to %d printable characters, has %d; say why the machine is needed" % (MOST_REASON, len(reason)))
        who = "".join(c for c in self._name(uid) if c.isprintable())[:64] or str(uid)
        with self._lock:
            self._forget_ended()
            before = self._kept.get(uid)
            if before is None and len(self._kept) >= MOST_KEEPS:
                raise Refused("%d people keep this machine already; it is kept until the last of them lets go" % len(self._kept))
            now_s, now = self._clock.boot_s(), self._clock.utc()
            if before is not None and before.until_s >= now_s + for_s:
                return before
            self._kept.pop(uid, None)  # the newest wish stands last
            made = self._kept[uid] = Kept(uid, who, reason, now_s + for_s, now + timedelta(seconds=for_s))
            if not self._save():
                self._log.warning("keep is not written down", who=who, lost="it ends with the agent")
            return made

    def off(self, uid: int) -> List[Kept]:
        """Take back one's own wish; root takes back all. The ones that were taken back."""
        with self._lock:
            self._forget_ended()
            gone = [kept for kept in self._kept.values() if uid in (0, kept.uid)]
            for kept in gone:
                del self._kept[kept.uid]
            if gone:
                self._save()
            return gone

    def all(self) -> List[Kept]:
        """Those in force, the last to end first."""
        with self._lock:
            self._forget_ended()
            return sorted(self._kept.values(), key=lambda kept: (-kept.until_s, kept.uid))

    def tell(self, resource: str, end_s: float) -> Optional[Keep]:
        """
        What the report of a window that ends at ``end_s`` carries: the newest wish in force, which the reaper keeps beside those it heard
        before, so that nobody's is hidden behind one that is longer than the operator allows. Another machine's (a copied disk) are dropped.
        """
        with self._lock:
            if self._resource != resource:
                if self._resource is not None and self._kept:
                    self._log.warning("keeps dropped", was=self._resource, now=resource, because="they are another machine's")
                    self._kept.clear()
                self._resource = resource
                if self._kept:
                    self._save()
            newest = next((kept for kept in reversed(list(self._kept.values())) if kept.until_s - end_s >= 1.0), None)
            return Keep(round(newest.until_s - end_s, 3), newest.reason, newest.who) if newest is not None else None

    def _forget_ended(self) -> None:
        now_s = self._clock.boot_s()
        self._kept = {uid: kept for uid, kept in self._kept.items() if now_s < kept.until_s}

    def _save(self) -> bool:
        kept = [{"uid": k.uid, "who": k.who, "reason": k.reason, "until_s": k.until_s, "left_s": k.until_s - self._clock.boot_s(), "until": k.until_at.timestamp()} for k in self._kept.values()]
        return write_json(self._file, {"v": 1, "boot_id": self._boot_id, "resource": self._resource, "keeps": kept}, self._log)

    def _load(self) -> None:
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            same_boot = document["boot_id"] == self._boot_id
            now_s, now = self._clock.boot_s(), self._clock.utc()
            for one in document["keeps"][:MOST_KEEPS]:
                left_s = min(one["until_s"] - now_s if same_boot else min(one["until"] - now.timestamp(), one["left_s"]), MOST_S)
                if left_s > 0.0:
                    until_at = now + timedelta(seconds=left_s)
                    self._kept[int(one["uid"])] = Kept(int(one["uid"]), str(one["who"]), str(one["reason"]), now_s + left_s, until_at)
            self._resource = document["resource"] if isinstance(document["resource"], str) else None
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self._log.warning("keeps not readable", file=str(self._file), because=str(error), remedy="whoever needs the machine asks again")


class Door:
    """The socket where people ask, answered by a thread of its own. `open` never raises: without it only the asking is lost."""

    def __init__(self, path: Path, keeps: Keeps, log: Log) -> None:
        self._path, self._keeps, self._log = path, keeps, log
        self._socket: Optional[socket.socket] = None
        self._inode: Optional[int] = None

    def open(self) -> bool:
        """False: not to be had; why is in the log."""
        try:
            if not self._path.parent.is_dir():
                self._path.parent.mkdir(parents=True)
                os.chmod(self._path.parent, 0o755)  # whatever the umask is: everybody may ask
            self._make_room()
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                made.bind(str(self._path))
                os.chmod(self._path, 0o666)  # who it is the kernel says
                self._inode = os.stat(self._path).st_ino
                made.listen(16)
            except OSError:
                made.close()
                raise
        except (OSError, ValueError) as error:
            self._log.warning("keep socket not opened", path=str(self._path), because=str(error), lost="reaper-agent keep; use reaper snooze")
            return False
        self._socket = made
        threading.Thread(target=self._serve, args=(made,), name="keep", daemon=True).start()
        return True

    def _make_room(self) -> None:
        """A socket that nobody listens at is an earlier agent's, and goes. Raises OSError where there is something else."""
        try:
            kind = os.lstat(self._path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise OSError("it is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_WITHIN_S)
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                os.unlink(self._path)
                return
        raise OSError("another agent listens at it")

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                came, _ = listening.accept()
            except OSError as error:
                if self._socket is not listening:
                    return  # closed
                self._log.warning("keep socket does not accept", because=str(error))
                time.sleep(1.0)  # out of descriptors, say: it may have some again
                continue
            with came, contextlib.suppress(OSError):
                came.settimeout(_WITHIN_S)
                _, uid, _ = _PEER.unpack(came.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                came.sendall(json.dumps(self._answer(came.recv(MOST_BYTES), uid)).encode() + b"\n")

    def _answer(self, body: bytes, uid: int) -> Dict[str, Any]:
        try:
            asked = json.loads(body.decode("utf-8"))
            if not isinstance(asked, dict):
                raise ValueError("no object")
            if asked.get("off") is True:
                return {"ended": [kept.shown() for kept in self._keeps.off(uid)], "keeps": [kept.shown() for kept in self._keeps.all()]}
            for_s, reason = asked["for_s"], asked["reason"]
            if isinstance(for_s, bool) or not isinstance(for_s, (int, float)) or not isinstance(reason, str):
                raise ValueError("no length or no reason")
            for_s = float(for_s)
        except (ValueError, KeyError, RecursionError, OverflowError) as error:
            return {"error": "not understood (%s); ask with: reaper-agent keep 4h --reason TEXT" % error}
        try:
            kept = self._keeps.ask(uid, for_s, reason)
        except Refused as error:
            return {"error": str(error)}
        self._log.info("asked to keep the machine", who=kept.who, uid=uid, until=rfc3339(kept.until_at), reason=kept.reason)
        return {"kept": kept.shown(), "keeps": [one.shown() for one in self._keeps.all()]}

    def close(self) -> None:
        """Also takes the path away, if it is still ours: who asks then hears at once that no agent runs."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        listening.close()
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)


def asked(path: Path, request: Dict[str, Any], within_s: float = 10.0) -> Dict[str, Any]:
    """What the agent of this machine answers. Raises OSError when none listens, ValueError when it answers what is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
        out.settimeout(within_s)
        out.connect(str(path))
        out.sendall(json.dumps(request).encode())
        out.shutdown(socket.SHUT_WR)
        body = b""
        while len(body) < 64 * 1024:
            more = out.recv(MOST_BYTES)
            if not more:
                break
            body += more
    answer = json.loads(body.decode("utf-8"))
    if not isinstance(answer, dict):
        raise ValueError("not an object")
    return answer
