"""
The clocks of the agent: time since boot for every length, the wall clock for display only.

The boot clock runs on while the machine sleeps and no NTP step moves it, so ages and
gaps measured by it are true. Tests hand in a clock that they move themselves.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What the loop needs to know of time. ``wait`` returns True when the event was set before the time was up."""

    def boot_s(self) -> float: ...

    def slept_s(self) -> float:
        """Seconds this machine has slept since boot. Only growth means something."""
        ...

    def utc(self) -> datetime: ...

    def wait(self, event: threading.Event, for_s: float) -> bool: ...


class BootClock:
    """The machine's own clocks. Where there is no CLOCK_BOOTTIME (not Linux) the monotonic clock stands in."""

    def __init__(self) -> None:
        self._which = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def boot_s(self) -> float:
        return time.clock_gettime(self._which)

    def slept_s(self) -> float:
        """The two clocks differ by nothing but sleep. They are read one after the other, so a moment's delay is measured and read again."""
        for _ in range(3):
            before = time.clock_gettime(time.CLOCK_MONOTONIC)
            boot = time.clock_gettime(self._which)
            after = time.clock_gettime(time.CLOCK_MONOTONIC)
            if after - before < 0.05:
                break
        return boot - before

    def utc(self) -> datetime:
        return datetime.now(timezone.utc)

    def wait(self, event: threading.Event, for_s: float) -> bool:
        return event.wait(max(0.0, for_s))


def rfc3339(moment: datetime) -> str:
    """An aware moment as RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def boot_id(path: Path = BOOT_ID_FILE) -> str:
    """The kernel's random id of this boot. Raises OSError where the kernel has none: without it no report could be placed."""
    return path.read_text(encoding="ascii").strip()
