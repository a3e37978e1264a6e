"""
What the GPUs were doing when this machine was last stopped, kept over the stop and told at the next boot.

Only GPU work counts: memory that is held and processes that merely live do not. The
file is written while GPUs compute, and then only while an action on this machine is
announced or the agent is told to end: an idle machine writes nothing. Whether a stop of
the reaper was to blame is the reaper's to say; it knows its own stops.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Optional, Tuple

from agent.at_work import words
from agent.readings import Log
from agent.report import Lost, Report

FILE = "last-work.json"


def work_of(report: Report) -> Optional[Tuple[float, str]]:
    """The highest peak of a GPU that computed in this window, and in words; None: none did, or it could not be seen."""
    peaks = [(gpu.peak_ratio, gpu.uuid) for gpu in report.gpus if gpu.peak_ratio is not None and gpu.peak_ratio > 0.0]
    if not peaks:
        return None
    peak, uuid = max(peaks)
    return peak, "%d of %d GPUs computed, %s at %.0f%%" % (len(peaks), len(report.gpus), uuid, 100 * peak)


def _seen(report: Report) -> bool:
    return any(gpu.peak_ratio is not None for gpu in report.gpus)


def _ratio(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value <= 1.0 else None


class LastWork:
    """For the loop's thread. A disk that fails is logged; nothing else depends on the file."""

    def __init__(self, folder: Path, boot_id: str, log: Log) -> None:
        self._path, self._boot_id, self._log = folder / FILE, boot_id, log
        self._on_disk: Optional[str] = None  # what the file holds, as this process knows
        self._newest: Optional[Report] = None
        self._written: Optional[int] = None  # the window that the note speaks of
        self._told_at: Optional[int] = None
        self._before = self._load()

    def _load(self) -> "Optional[dict[str, Any]]":
        """What an earlier boot left. This boot's own note means that only the agent was started again: nothing was stopped."""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._log.warning("last work not readable", file=str(self._path), because=str(error))
            return None
        texts = ("resource", "boot_id", "because")
        if not isinstance(document, dict) or not all(isinstance(document.get(name), str) for name in texts):
            self._log.warning("last work not readable", file=str(self._path), because="not a note of ours")
            return None
        if document["boot_id"] == self._boot_id:
            self._on_disk = "this boot's"
            self._forget()
            return None
        self._on_disk = "an earlier boot's"
        return document

    def see(self, report: Report, announced: bool) -> None:
        """A window closed. ``announced``: the reaper's newest answer speaks of something to come."""
        if _seen(report):  # a window too short for a sample says nothing, and the one before it still counts
            self._newest = report
        if announced:
            self.keep()

    def keep(self) -> None:
        """Write down what the newest window saw, durably; a quiet one removes the note."""
        report = self._newest
        work = work_of(report) if report is not None else None
        if report is None or work is None:
            # An earlier boot's note stays until it was told; it speaks of another boot and cannot be mistaken.
            if self._on_disk == "this boot's":
                self._forget()
            return
        if self._on_disk == "this boot's" and self._written == report.seq:
            return
        note = {"v": 1, "resource": report.resource, "boot_id": self._boot_id, "peak_ratio": work[0], "because": work[1], "seq": report.seq}
        if self._write(json.dumps(note, separators=(",", ":")).encode()):
            self._on_disk, self._written = "this boot's", report.seq

    def tell(self, resource: str, seq: int) -> Optional[Lost]:
        """For the report ``seq``: the work that the last boot of this machine ended with, until a report with it was taken."""
        before = self._before
        if before is None:
            return None
        if before["resource"] != resource:
            self._log.warning("last work discarded", was=before["resource"], now=resource)
            self._done()
            return None
        if self._told_at is None:
            self._told_at = seq
            self._log.warning("the last boot ended with work on its GPUs", boot=before["boot_id"], because=before["because"])
        boot, because = words(before["boot_id"]), words(before["because"])
        return Lost(boot or "?", because or "?", _ratio(before.get("peak_ratio")))

    def taken(self, seq: Optional[int]) -> None:
        """The reaper took the report ``seq``."""
        if self._told_at is not None and seq is not None and seq >= self._told_at:
            self._done()

    def _done(self) -> None:
        self._before, self._told_at = None, None
        if self._on_disk == "an earlier boot's":
            self._forget()

    def _forget(self) -> None:
        try:
            self._path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            self._log.warning("last work not removed", file=str(self._path), because=error.strerror)
            return
        self._on_disk = None

    def _write(self, body: bytes) -> bool:
        """Through to the disk, for a machine may lose power a moment later."""
        new = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with open(new, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            self._log.warning("last work not written", file=str(self._path), because=error.strerror)
            return False
        return True
