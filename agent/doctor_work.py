"""The doctor's checks of what is seen of people, and of the socket through which jobs tell of their waiting."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import List, Optional

from agent import procs
from agent.doctor_driver import OK, WARN, Check

_DO_TERMINALS = "let the agent see the host's /dev/pts (a bind mount), or give its unit AmbientCapabilities=CAP_SYS_PTRACE"
_DO_SLEEP = "run as root, or give the agent's unit AmbientCapabilities=CAP_SYS_PTRACE"
_LOST_HOOK = "what jobs tell of their own waiting; the estimate stands"


def people(tried: int = 1, proc: Path = procs.PROC, pts: Path = Path("/dev/pts")) -> List[Check]:
    """May terminals be listed, and may it be seen where a process of another user sleeps and what it is connected to? ``tried``: which."""
    checks = []
    if os.access(pts, os.R_OK | os.X_OK):
        checks.append(Check("terminals", OK, "%s may be listed" % pts))
    else:
        lost = "when somebody typed: a machine with a session is then never found idle"
        checks.append(Check("terminals", WARN, "%s may not be listed" % pts, lost, _DO_TERMINALS))
    try:
        os.listdir("%s/%d/fd" % (proc, tried))
        os.readlink("%s/%d/ns/net" % (proc, tried))
    except OSError:
        lost = "whether notebook kernels run a cell, containers' terminals, and connections to other machines; such a machine is held"
        checks.append(Check("sessions", WARN, "%s/%d/fd may not be read" % (proc, tried), lost, _DO_SLEEP))
    else:
        checks.append(Check("sessions", OK, "%s/PID/fd, wchan and net of other users may be read" % proc))
    return checks


def hook(path: Optional[Path]) -> Check:
    """Is there a socket that a running agent reads, and may everybody's jobs reach it?"""
    if path is None:
        return Check("loader hook", OK, "turned off in the settings")
    remedy = "start the agent; let systemd keep %s (RuntimeDirectory=reaper-agent, RuntimeDirectoryPreserve=yes), or name another hook_socket" % path.parent
    try:
        seen = os.stat(path)
    except OSError as error:
        return Check("loader hook", WARN, "%s: %s" % (path, error.strerror), _LOST_HOOK, remedy)
    if not stat.S_ISSOCK(seen.st_mode):
        return Check("loader hook", WARN, "%s is no socket" % path, _LOST_HOOK, "move it away and start the agent again")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))  # nothing is sent
        except OSError as error:
            return Check("loader hook", WARN, "nobody reads %s (%s)" % (path, error.strerror), _LOST_HOOK, remedy)
    closed = [str(folder) for folder in path.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if closed or not seen.st_mode & stat.S_IWOTH:
        found = "jobs of other users cannot reach %s" % path
        return Check("loader hook", WARN, found, _LOST_HOOK + " for theirs", "chmod o+x %s; chmod 666 %s" % (" ".join(closed) or path.parent, path))
    return Check("loader hook", OK, "%s is read by an agent and open to all jobs" % path)
