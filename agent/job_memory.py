"""
The jobs of this boot, kept over a restart of the agent: what has ended must not be forgotten, and what ended meanwhile is noticed.

Nothing is told from the file alone: whoever reads it looks again for the processes, the groups and the launchers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from agent.readings import Log
from agent.state import STATUS, write_json

FILE = "jobs.json"
AWAY_S = 120.0  # two windows: the status file is written once in each
SAVE_EVERY_S = 30.0


class JobMemory:
    """``folder``: the agent's state. A disk that fails is logged; then an end is not known after a restart."""

    def __init__(self, folder: Path, boot_id: str, log: Log) -> None:
        self._path, self._status, self._boot_id, self._log = str(folder / FILE), str(folder / STATUS), boot_id, log
        self._saved_s = float("-inf")

    def load(self) -> List[Dict[str, Any]]:
        """The jobs as saved in this very boot; none when there is nothing of it."""
        document = self._read(self._path)
        jobs = document.get("jobs") if document.get("boot_id") == self._boot_id else None
        return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []

    def last_alive_s(self) -> Optional[float]:
        """Boot clock of the last sign of life of the agent before this one, to a window; None: not in this boot."""
        document = self._read(self._status)
        at_s = document.get("written_boot_s")
        return float(at_s) if document.get("boot_id") == self._boot_id and isinstance(at_s, (int, float)) else None

    def save(self, jobs: Sequence[Mapping[str, Any]], now_s: float, at_once: bool) -> bool:
        """Whether it was written: a change that is not urgent waits a little."""
        if not at_once and now_s - self._saved_s < SAVE_EVERY_S:
            return False
        self._saved_s = now_s
        return write_json(Path(self._path), {"v": 1, "boot_id": self._boot_id, "jobs": list(jobs)}, self._log)

    def _read(self, path: str) -> Dict[str, Any]:
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            self._log.warning("state not readable", file=path, because=str(error))
            return {}
        return document if isinstance(document, dict) else {}
