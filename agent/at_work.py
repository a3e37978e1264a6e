"""
From looks at who works here to what a report says of it (pure): sums over a window, what shows the most work first.
"""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple

from agent.readings import AtWorkReading, PresenceReading
from agent.report import MAX_TEXT, AtWork, Presence

MOST_AT_WORK, MOST_UNREAD = 16, 8
HARDLY_CORES, HARDLY_BYTES_PER_S = 0.005, 1024.0  # less, without a terminal, is no work to speak of


class _Sum:
    """One tree over the looks of a window. ``typed_s``: the boot clock of the last input."""

    def __init__(self) -> None:
        self.last: Optional[AtWorkReading] = None
        self.typed_s: Optional[float] = None
        self.cpu_s: Optional[float] = None
        self.bytes: Optional[int] = None
        self.busy: Optional[bool] = None
        self.busy_s: Optional[float] = None

    def add(self, one: AtWorkReading, at_s: float) -> None:
        first, self.last = self.last is None, one
        if one.idle_s is not None:
            self.typed_s = max(at_s - one.idle_s, self.typed_s if self.typed_s is not None else -math.inf)
        if one.cpu_s is not None:
            self.cpu_s = (self.cpu_s or 0.0) + one.cpu_s
        if one.bytes is not None:
            self.bytes = (self.bytes or 0) + one.bytes
        # One look that found a cell running is a window with work, and one that could not look is not idleness.
        self.busy = one.busy if first else (True if True in (self.busy, one.busy) else None if None in (self.busy, one.busy) else False)
        self.busy_s = max((s for s in (self.busy_s, one.busy_s) if s is not None), default=None)


def fold(looks: Sequence[PresenceReading], end_s: float) -> Presence:
    """``looks`` of one window, in order; ``end_s``: the boot clock of its end."""
    sums: Dict[str, _Sum] = {}
    over_s = math.fsum(look.for_s for look in looks if look.for_s is not None)
    unread: List[str] = []
    for look in looks:
        unread += look.unread
        for one in look.at_work:
            sums.setdefault(one.id, _Sum()).add(one, look.at_s)
    told = [_told(one, over_s, end_s) for one in sums.values()]
    kept = sorted((one for one in told if one is not None), key=_least)
    return Presence(tuple(kept[:MOST_AT_WORK]), tuple(dict.fromkeys(words(text) or "?" for text in unread))[:MOST_UNREAD])


def _told(total: _Sum, over_s: float, end_s: float) -> Optional[AtWork]:
    """None: a tree without a terminal or a kernel that did nothing."""
    one = total.last
    if one is None:
        return None
    cores = total.cpu_s / over_s if total.cpu_s is not None and over_s > 0 else None
    rate = total.bytes / over_s if total.bytes is not None and over_s > 0 else None
    moved = (cores or 0.0) >= HARDLY_CORES or (rate or 0.0) >= HARDLY_BYTES_PER_S
    if not moved and one.idle_s is None and total.typed_s is None and one.kind not in ("kernel", "editor"):
        return None
    return AtWork(
        kind=one.kind,
        user=words(one.user),
        uid=one.uid,
        name=words(one.name),
        idle_s=round(max(0.0, end_s - total.typed_s), 1) if total.typed_s is not None else None,
        cpu_cores=round(cores, 3) if cores is not None else None,
        io_bytes_per_s=round(rate, 1) if rate is not None else None,
        busy=total.busy,
        busy_s=round(total.busy_s, 1) if total.busy_s is not None else None,
    )


def _least(one: AtWork) -> Tuple[bool, float, float, float]:
    """Those that may be at work first: a running cell, then by cores, by what was typed last, by bytes."""
    idle_s = one.idle_s if one.idle_s is not None else math.inf
    return (one.busy is not True, -(one.cpu_cores or 0.0) - (1.0 if idle_s <= 120.0 else 0.0), idle_s, -(one.io_bytes_per_s or 0.0))


def words(text: Optional[str]) -> Optional[str]:
    """Text as the wire takes it: printable, at most 256 characters; None when nothing is left."""
    if text is None:
        return None
    kept = "".join(c if c.isprintable() else " " for c in text)[:MAX_TEXT].strip()
    return kept or None
