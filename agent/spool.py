"""
Reports that could not be sent, on disk, bounded in number and bytes.

One file per report. Only reports of the current boot are kept: an older boot's ages
cannot be told any more. When it is full the oldest goes, and is counted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from agent.readings import Log
from agent.report import Report, ReportError, decode, encode


@dataclass(frozen=True)
class _Entry:
    seq: int
    path: Path
    size: int


class Spool:
    """
    For one thread. A disk that fails loses the report, counted in ``dropped``; it
    never raises. ``keep(resource)`` throws away what belongs to another machine.
    """

    def __init__(self, folder: Path, boot_id: str, most_reports: int, most_bytes: int, log: Log) -> None:
        self._folder, self._boot_id, self._log = folder, boot_id, log
        self._most_reports, self._most_bytes = most_reports, most_bytes
        self.dropped = 0
        self._entries: List[_Entry] = []
        self._prefix = re.sub(r"[^A-Za-z0-9-]", "_", boot_id)[:64] + "."
        self._read_folder()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self._entries)

    def put(self, report: Report) -> None:
        body = encode(report)
        path = self._folder / ("%s%016d.json" % (self._prefix, report.seq))
        self._entries = [e for e in self._entries if e.path != path]  # written once more: it must not push another one out
        while self._entries and (
            len(self._entries) >= self._most_reports or self.size_bytes + len(body) > self._most_bytes
        ):
            self._drop(self._entries[0], "spool full")
        new = path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_bytes(body)
            os.replace(new, path)
        except OSError as error:
            self.dropped += 1
            self._log.error("report lost", seq=report.seq, because="spool %s: %s" % (self._folder, error.strerror))
            return
        self._entries.append(_Entry(report.seq, path, len(body)))
        self._entries.sort(key=lambda entry: entry.seq)

    def batch(self, most: int, newest_first: bool = False) -> List[Tuple[Path, Report]]:
        """Up to ``most`` reports, oldest first, or the newest one and then the oldest. What cannot be read is dropped and counted."""
        found: List[Tuple[Path, Report]] = []
        entries = self._entries[-1:] + self._entries[:-1] if newest_first else list(self._entries)
        for entry in entries:
            if len(found) >= most:
                break
            report = self._load(entry)
            if report is not None:
                found.append((entry.path, report))
        return found

    def remove(self, path: Path) -> None:
        """Forget a report that was delivered or refused."""
        self._entries = [entry for entry in self._entries if entry.path != path]
        self._unlink(path)

    def clear(self, because: str) -> None:
        """Drop everything, counted."""
        for entry in list(self._entries):
            self._drop(entry, because)

    def _load(self, entry: _Entry) -> Optional[Report]:
        try:
            report = decode(entry.path.read_bytes())
        except (OSError, ReportError) as error:
            self._drop(entry, str(error))
            return None
        if report.boot_id != self._boot_id:
            self._drop(entry, "another boot")
            return None
        return report

    def _read_folder(self) -> None:
        try:
            files = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.error("spool cannot be read", folder=str(self._folder), because=error.strerror)
            return
        for path in files:
            number = path.name[len(self._prefix) : -len(".json")]
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if path.suffix == ".new":
                self._unlink(path)  # a write that a crash cut off
            elif path.suffix == ".json" and path.name.startswith(self._prefix) and number.isdigit():
                self._entries.append(_Entry(int(number), path, size))
            elif path.suffix == ".json":
                self._drop(_Entry(0, path, size), "another boot")
        self._entries.sort(key=lambda entry: entry.seq)

    def _drop(self, entry: _Entry, because: str) -> None:
        self.dropped += 1
        self._entries = [e for e in self._entries if e.path != entry.path]
        self._unlink(entry.path)
        self._log.warning("spooled report dropped", file=entry.path.name, because=because)

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.error("spool file stays", file=str(path), because=error.strerror)
