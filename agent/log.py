"""
The running agent's log: structlog, rendered as key='value' on standard error, as systemd's journal takes it.

Nothing global is configured: an agent may run inside another program (the demo) that has
structlog set up its own way. Event names are fixed texts; what varies stands in the keys.
"""

from __future__ import annotations

import sys
import threading
from typing import IO, Any, Optional, cast

from agent.deferred import deferred
from agent.readings import Log


def configured(stream: Optional[IO[str]] = None) -> Log:
    """
    The agent's logger: lines of timestamp, level, event and keys, from level info on.
    ``stream`` None: standard error as it is at each line. A stream that is gone costs
    the line only.
    """
    # Here, since `status`, `doctor` and --help log nothing. The two are for its asynchronous methods and an old way of
    # binding, which nothing here calls: 40 ms and 3 MiB of every start.
    with deferred("asyncio", "uuid"):
        import structlog

    processors: "list[Any]" = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # repr: text of others cannot break out of its value, or out of its line
        structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
    ]
    info = structlog.make_filtering_bound_logger(20)
    return cast(Log, structlog.wrap_logger(_Lines(stream), processors=processors, wrapper_class=info))


class _Lines:
    """
    What structlog writes to. Its own PrintLogger holds one stream for good and raises
    when nobody reads it any more; the agent goes on then.
    """

    def __init__(self, stream: Optional[IO[str]]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def info(self, line: str) -> None:
        stream = self._stream if self._stream is not None else sys.stderr
        try:
            with self._lock:  # lines of several threads must not run into each other
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError, AttributeError):
            return  # nobody listens any more (None: standard error was never open), and there is nowhere to say so

    debug = warning = error = info
