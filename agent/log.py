"""
The running agent's log: lines of key='value' on standard error, as systemd's journal takes them.

It stands in for structlog, whose import alone costs 100 ms and 4 MiB (asyncio comes
with it), on hosts whose memory belongs to somebody's job. Calls look the same.
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import IO, Optional


class LineLog:
    """`readings.Log` on a stream; None: standard error as it is at each line. A stream that is gone costs the line only."""

    def __init__(self, stream: Optional[IO[str]] = None) -> None:
        self._stream = stream

    def debug(self, event: str, **keys: object) -> None:
        """Not shown."""

    def info(self, event: str, **keys: object) -> None:
        self._line("info", event, keys)

    def warning(self, event: str, **keys: object) -> None:
        self._line("warning", event, keys)

    def error(self, event: str, **keys: object) -> None:
        self._line("error", event, keys)

    def _line(self, level: str, event: str, keys: "dict[str, object]") -> None:
        at = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        pairs = {"timestamp": at, "level": level, "event": event, **keys}
        text = " ".join("%s=%r" % pair for pair in pairs.items())
        try:
            # One write: lines of several threads must not run into each other.
            (self._stream or sys.stderr).write(text + "\n")
            (self._stream or sys.stderr).flush()
        except (OSError, ValueError):
            return  # nobody listens any more, and there is nowhere to say so
