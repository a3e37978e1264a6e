"""
Whether people work on a machine beside its GPUs, by one report window.

Input counts in the window that it fell in, a kernel's cell as long as it runs, and every tree of somebody's processes by its
CPU and its bytes. What is open and does nothing (a session, a tab, a server, an idle kernel) does not count.
"""

import math

from reaper.model.presence import AtWork
from reaper.model.signal import Observation, Signal

TYPED_WITHIN = 1.5
"""Window lengths. The agent looks twice in a window, so the last input of one may be told in the next."""

SILENT_CELL_S = 72 * 3600.0
"""A cell that has run for so long and used no CPU meanwhile is a loop that somebody forgot, and no longer work."""

EDITOR_SHARE = 0.25
"""Of the CPU limit: one who types moves an editor's server and its language servers by less than a program does."""

IO_SHARE = 0.2
"""Of the host's disk limit: what a tree of somebody's reads and writes by calls is work from a fifth of that on."""

SILENT_CORES = 0.01


def values(seen: Observation) -> dict[Signal, float]:
    """The figures for the idle clock; empty: the agent does not tell. ``PEOPLE`` is 1 for input or a running cell, else 0."""
    if seen.presence is None:
        return {}
    people = seen.presence.at_work
    return {
        Signal.PEOPLE: 1.0 if any(_input(one, seen) or _cell(one) for one in people) else 0.0,
        Signal.WORK_CPU: max((_cores(one) for one in people), default=0.0),
        Signal.WORK_IO: max((_bytes(one) for one in people), default=0.0),
    }


def known(seen: Observation) -> dict[Signal, bool]:
    """Whether "nobody works" could have been seen; empty: the agent does not tell, and is judged as ever."""
    if seen.presence is None:
        return {}
    looked = not seen.presence.unread
    cores = all(_is_figure(one.cores) for one in seen.presence.at_work)
    return {Signal.PEOPLE: looked and all(_told(one) for one in seen.presence.at_work), Signal.WORK_CPU: looked and cores, Signal.WORK_IO: looked}


def unreadable(seen: Observation) -> str | None:
    """Why it cannot be said that nobody works; None: it can, or the agent does not look."""
    if seen.presence is None:
        return None
    if seen.presence.unread:
        return "; ".join(seen.presence.unread)
    for one in seen.presence.at_work:
        if not _told(one):
            return f"whether {one.user or 'somebody'}'s {words(one)} is in use"
        if not _is_figure(one.cores):
            return f"the CPU of {one.user or 'somebody'}'s {words(one)}"
    return None


def sign(seen: Observation, cpu: float, disk_bytes_per_s: float) -> str | None:
    """The first sign of somebody at work, for people. ``cpu``: cores, ``disk_bytes_per_s``: of the host; the policy's limits."""
    for one in seen.presence.at_work if seen.presence is not None else ():
        who = f"{one.user or 'somebody'}'s {words(one)}"
        if _input(one, seen):
            return f"people at work: {who} had input {one.idle_s:.0f} s before the window's end"
        if _cell(one):
            return f"people at work: {who} runs a cell"
        if _cores(one) >= cpu:
            return f"people at work: {who} used {one.cores or 0.0:.2f} cores"
        if _bytes(one) >= disk_bytes_per_s:
            return f"people at work: {who} moved {(one.io_bytes_per_s or 0.0) / (1 << 20):.1f} MiB/s"
    return None


def forgotten_cell(one: AtWork) -> bool:
    """Whether it is a cell that runs and no longer counts."""
    return one.busy is True and not _cell(one)


def words(one: AtWork) -> str:
    return f"{one.kind} ({one.name})" if one.name is not None else one.kind


def _told(one: AtWork) -> bool:
    """Whether what should tell of use does: a kernel whether it runs a cell, and no time or rate that cannot be one."""
    if one.kind == "kernel" and one.busy is None:
        return False
    return all(value is None or _is_figure(value) for value in (one.idle_s, one.io_bytes_per_s, one.busy_s))


def _is_figure(value: float | None) -> bool:
    return value is not None and 0.0 <= value < math.inf


def _input(one: AtWork, seen: Observation) -> bool:
    return one.idle_s is not None and 0.0 <= one.idle_s <= TYPED_WITHIN * seen.window_s


def _cell(one: AtWork) -> bool:
    silent = one.cores is not None and one.cores < SILENT_CORES
    long = one.busy_s is not None and one.busy_s >= SILENT_CELL_S
    return one.busy is True and not (silent and long)


def _cores(one: AtWork) -> float:
    cores = one.cores if one.cores is not None and 0.0 <= one.cores < math.inf else 0.0
    return cores / EDITOR_SHARE if one.kind == "editor" else cores


def _bytes(one: AtWork) -> float:
    return one.io_bytes_per_s / IO_SHARE if one.io_bytes_per_s is not None and 0.0 <= one.io_bytes_per_s < math.inf else 0.0
