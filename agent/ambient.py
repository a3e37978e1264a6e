"""
What the machine as a whole shows of waiting for data: bytes received, and the kernel's io pressure (PSI).

Asked only at beats in which a tree's GPUs stood low. Counters of the kernel alone, never a mount; each fails alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, NamedTuple, Optional

from agent.procs import PROC

SYS = Path("/sys")
_LOOKED_UP_FOR = 240  # reads: which interfaces have hardware behind them hardly ever changes
_MOST_BYTES = 65536


class Around(NamedTuple):
    """Since boot. ``received_bytes``: by interfaces with hardware behind them, else by all but loopback. ``stalled_s``: "some" of io."""

    received_bytes: Optional[int] = None
    stalled_s: Optional[float] = None


class Ambient:
    """Reads of one machine. ``proc`` and ``sys`` are the roots to read below."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = str(proc), str(sys)
        self._hardware: Dict[str, bool] = {}
        self._reads = 0

    def read(self) -> Around:
        return Around(self._received(), pressure_s("%s/pressure/io" % self._proc))

    def blocked_is_accounted(self) -> bool:
        """
        Whether the kernel counts a process's waits for block devices. It does not unless it is told to, and then the count
        reads as 0 for ever. Kernels that cannot be asked (before 5.14) may count or not: then it is not believed either.
        """
        text = _text("%s/sys/kernel/task_delayacct" % self._proc)
        return text is not None and text.strip() == "1"

    def _received(self) -> Optional[int]:
        self._reads += 1
        if self._reads % _LOOKED_UP_FOR == 0:
            self._hardware = {}
        received: Dict[str, int] = {}
        for line in (_text("%s/net/dev" % self._proc) or "").splitlines()[2:]:
            name, _, rest = line.partition(":")
            words = rest.split(None, 1)
            name = name.strip()
            if name != "lo" and words and words[0].isdigit():
                received[name] = int(words[0])
        outside = {name: count for name, count in received.items() if self._has_hardware(name)} or received
        return sum(outside.values()) if outside else None

    def _has_hardware(self, name: str) -> bool:
        if name not in self._hardware:
            self._hardware[name] = os.path.exists("%s/class/net/%s/device" % (self._sys, name))
        return self._hardware[name]


def pressure_s(path: str) -> Optional[float]:
    """The seconds in which at least one process stood for io ("some", in total). None: the kernel or the container has no such file."""
    text = _text(path)
    if text is None or not text.startswith("some "):
        return None
    total = text.split("\n", 1)[0].rpartition("total=")[2].strip()
    return int(total) / 1e6 if total.isdigit() else None


def _text(path: str) -> Optional[str]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        body = part = os.read(file, _MOST_BYTES)
        while part and len(body) < _MOST_BYTES:
            part = os.read(file, _MOST_BYTES)
            body += part
        return body.decode("utf-8", "replace")
    except OSError:  # pressure: the kernel has it, and it is turned off (EOPNOTSUPP)
        return None
    finally:
        os.close(file)
