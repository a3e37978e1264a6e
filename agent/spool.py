"""
Reports that could not be sent, on disk, bounded in number and bytes.

One file per report. Only reports of the current boot are kept: an older boot's ages
cannot be told any more. When it is full the oldest goes, and is counted.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, insort
from pathlib import Path
from typing import Dict, List, Tuple

from agent.readings import Log
from agent.report import Report, ReportError, decode, encode


class Spool:
    """
    For one thread. A disk that fails loses the report, counted in ``dropped``; it
    never raises. Of each report only its number and size stay in memory: a reaper
    may be away for a day.
    """

    def __init__(self, folder: Path, boot_id: str, most_reports: int, most_bytes: int, log: Log) -> None:
        self._folder, self._boot_id, self._log = folder, boot_id, log
        self._most_reports, self._most_bytes = most_reports, most_bytes
        self.dropped = 0
        self.size_bytes = 0
        self._seqs: List[int] = []  # sorted
        self._sizes: Dict[int, int] = {}  # by seq, in bytes
        self._prefix = re.sub(r"[^A-Za-z0-9-]", "_", boot_id)[:64] + "."
        self._read_folder()

    def __len__(self) -> int:
        return len(self._seqs)

    def put(self, report: Report) -> None:
        body, seq = encode(report), report.seq
        self._forget(seq)  # written once more: it must not push another one out
        while self._seqs and (len(self) >= self._most_reports or self.size_bytes + len(body) > self._most_bytes):
            self._drop(self._seqs[0], "spool full")
        path = self._path(seq)
        new = path[: -len(".json")] + ".new"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(new, "wb") as file:
                file.write(body)
            os.replace(new, path)
        except OSError as error:
            self.dropped += 1
            self._log.error("report lost", seq=seq, because="spool %s: %s" % (self._folder, error.strerror))
            return
        self._keep(seq, len(body))

    def batch(self, most: int, newest_first: bool = False) -> List[Tuple[int, Report]]:
        """
        Up to ``most`` reports with their seqs, oldest first, or the newest one and then
        the oldest. What cannot be read is dropped and counted.
        """
        found: List[Tuple[int, Report]] = []
        for seq in self._seqs[-1:] + self._seqs[:-1] if newest_first else list(self._seqs):
            if len(found) >= most:
                break
            try:
                with open(self._path(seq), "rb") as file:
                    report = decode(file.read())
            except (OSError, ReportError) as error:
                self._drop(seq, str(error))
                continue
            if report.boot_id != self._boot_id:
                self._drop(seq, "another boot")
                continue
            found.append((seq, report))
        return found

    def remove(self, seq: int) -> None:
        """Forget a report that was delivered or refused."""
        self._forget(seq)
        self._unlink(self._path(seq))

    def clear(self, because: str) -> None:
        """Drop everything, counted."""
        for seq in list(self._seqs):
            self._drop(seq, because)

    def _path(self, seq: int) -> str:
        """A text: each name that went through a Path is kept interned for a while or, on some Pythons, for good."""
        return "%s/%s%016d.json" % (self._folder, self._prefix, seq)

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
                self._unlink(str(path))  # a write that a crash cut off
            elif number.isascii() and number.isdigit() and str(path) == self._path(int(number)):
                self._keep(int(number), size)
            elif path.suffix == ".json":
                self._dropped(str(path), "another boot")

    def _keep(self, seq: int, size: int) -> None:
        insort(self._seqs, seq)
        self._sizes[seq] = size
        self.size_bytes += size

    def _forget(self, seq: int) -> None:
        if seq in self._sizes:
            self.size_bytes -= self._sizes.pop(seq)
            del self._seqs[bisect_left(self._seqs, seq)]

    def _drop(self, seq: int, because: str) -> None:
        self._forget(seq)
        self._dropped(self._path(seq), because)

    def _dropped(self, path: str, because: str) -> None:
        self.dropped += 1
        self._unlink(path)
        self._log.warning("spooled report dropped", file=os.path.basename(path), because=because)

    def _unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.error("spool file stays", file=str(path), because=error.strerror)
