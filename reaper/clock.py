"""The only place in reaper/ that reads the wall clock. Everything else is told what time it is."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall clock in UTC for moments, monotonic clock for lengths inside one process."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps."""
        return time.monotonic()
