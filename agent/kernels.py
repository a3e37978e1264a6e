"""
Whether a notebook's kernel runs a cell, told by where its main thread sleeps.

An idle kernel waits in its event loop for the next message. One that runs a cell computes, or sleeps somewhere else: for
a lock, a pipe, a child, a clock, a socket. Nothing is asked of the notebook's server: its web socket says who looks, and
not who works.

A cell that waits inside the loop (`await`) sleeps where an idle kernel does. How long the loop means to sleep tells many of
them apart: Python's loop sleeps until the next timer that is set in it, and without a limit where none is. Measured of ipykernel
6.31 and 7.4: an idle kernel has no limit at any of 3,800 looks, also after cells that ended, failed, or timed out; a cell
that awaits `asyncio.sleep`, `wait_for`, `asyncio.timeout`, an answer over aiohttp, or a loop of short sleeps has one. Not to be told are awaits
without any limit (an event, a future, a thread, a child's end, a bare socket), unless something below the kernel works. Timers that a
cell left behind (a background task, an HTTP session for its 15 s) count as one that runs.
"""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Optional

from agent.procs import Procs

LOOKS = 3
APART_S = 0.004
_LOOP = re.compile(r"e?poll|select")
_PYTHONS_LOOP = re.compile(r"ep_poll|epoll")  # a poll of one descriptor is how a socket with a time limit waits
# epoll_wait and epoll_pwait, by machine; both have their limit in milliseconds fourth. (Python's loop asks by these.)
_EPOLLS = {"x86_64": ("232", "281"), "aarch64": ("22",)}.get(os.uname().machine, ())
_LIMIT = 3
_PYTHON = re.compile(r"^(python|pypy|ipython|ipykernel)")


def is_busy(procs: Procs, pid: int, name: str, wait: Callable[[float], None] = time.sleep) -> Optional[bool]:
    """None: that cannot be seen. A kernel that answers a message is out of its loop for a moment, so one look is not enough."""
    loop = _PYTHONS_LOOP if _PYTHON.match(name) else _LOOP
    for look in range(LOOKS):
        if look:
            wait(APART_S)
        stat = procs.stat(pid)
        if stat is None or not stat.lives:
            return False
        if stat.state in ("T", "t"):
            return None
        if stat.state != "S":
            continue
        where = procs.sleeps_in(pid)
        if where is None:
            # Awake by now, or hidden: asked of one that surely sleeps, the next look tells.
            again = procs.stat(pid)
            if again is not None and again.state == "S" and procs.sleeps_in(pid) is None:
                return None
            continue
        if loop.search(where):
            return loop is _PYTHONS_LOOP and awaits_until(procs, pid)
    return True


def awaits_until(procs: Procs, pid: int) -> bool:
    """Whether its event loop sleeps with a limit: for a timer that a cell set. False also where that cannot be read."""
    call = procs.call(pid)
    if call is None or call[0] not in _EPOLLS or len(call[1]) <= _LIMIT:
        return False
    milliseconds = call[1][_LIMIT] & 0xFFFFFFFF
    return 0 < milliseconds < 0x80000000
