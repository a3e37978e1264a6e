"""
Whether a notebook's kernel runs a cell, told by where its main thread sleeps.

An idle kernel waits in its event loop for the next message. One that runs a cell computes, or sleeps somewhere else: for
a lock, a pipe, a child, a clock, a socket. A cell that waits inside the loop itself (`await`) looks idle, unless something
below it works. Nothing is asked of the notebook's server: its web socket says who looks, and not who works.
"""

from __future__ import annotations

import re
import time
from typing import Callable, Optional

from agent.procs import Procs

LOOKS = 3
APART_S = 0.004
_LOOP = re.compile(r"e?poll|select")
_PYTHONS_LOOP = re.compile(r"ep_poll|epoll")  # a poll of one descriptor is how a socket with a time limit waits
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
            return False
    return True
