"""Scripted stand-ins for what the agent reads and tells: clock, log, GPUs, host, the reaper's door."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from agent.config import Settings
from agent.readings import GpuReading, GpuSnapshot, HostReading, Sample
from agent.report import Report, decode
from agent.sender import Delivery

RESOURCE = "aws:123456789012:eu-west-1:instance:i-0abc"
OTHER = "aws:123456789012:eu-west-1:instance:i-0def"
BOOT = "5f0c9c5e-0000-4000-8000-000000000001"


class ManualClock:
    """All clocks stand still until moved. ``wait`` moves them on by what was to be waited, unless the event comes first."""

    def __init__(self, boot_s: float = 1000.0) -> None:
        self.now_s = boot_s
        self.slept = 0.0
        self.wall = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)

    def boot_s(self) -> float:
        return self.now_s

    def slept_s(self) -> float:
        return self.slept

    def utc(self) -> datetime:
        return self.wall

    def sleep(self, for_s: float) -> None:
        """The machine sleeps: what runs sees nothing of it, and the boot clock goes on."""
        self.move(for_s)
        self.slept += for_s

    def move(self, by_s: float) -> None:
        self.now_s += by_s
        self.wall += timedelta(seconds=by_s)

    def wait(self, event: threading.Event, for_s: float) -> bool:
        if event.is_set():
            return True
        self.move(max(0.0, for_s))
        return False


class PatientClock(ManualClock):
    """For a real sampler thread: waits in earnest for an event that is about to come, without moving the clock."""

    def wait(self, event: threading.Event, for_s: float) -> bool:
        return event.wait(5.0)


class Lines:
    """A log that keeps its lines: (level, event, keys)."""

    def __init__(self) -> None:
        self.lines: List[Tuple[str, str, Dict[str, Any]]] = []

    def _take(level: str) -> Callable[..., None]:  # type: ignore[misc]
        def take(self: Lines, event: str, **keys: Any) -> None:
            self.lines.append((level, event, keys))

        return take

    debug, info, warning, error = _take("debug"), _take("info"), _take("warning"), _take("error")

    def events(self) -> List[str]:
        return [event for _, event, _ in self.lines]


class ScriptedGpus:
    """Hands out what ``read_next`` makes; a list is played once and its last item for ever."""

    def __init__(self, script: Callable[[], GpuSnapshot]) -> None:
        self.doing = ""
        self.closed = 0
        self._script = script

    def read(self) -> GpuSnapshot:
        return self._script()

    def close(self) -> None:
        self.closed += 1


class ScriptedHost:
    """Hands out one HostReading after another; the last one for ever."""

    def __init__(self, *readings: HostReading) -> None:
        self._readings = list(readings) or [HostReading()]

    def read(self) -> HostReading:
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]


class KeptReports:
    """An outbox that keeps everything."""

    def __init__(self) -> None:
        self.reports: List[Report] = []
        self.forgotten: List[str] = []
        self.closed = 0
        self.came = threading.Condition()

    def hand(self, report: Report) -> None:
        with self.came:
            self.reports.append(report)
            self.came.notify_all()

    def wait_for(self, count: int, within_s: float = 20.0) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.reports) >= count, within_s), "only %d reports came" % len(self.reports)

    def forget(self, because: str) -> None:
        self.forgotten.append(because)

    def delivery(self) -> Delivery:
        return Delivery()

    def close(self) -> None:
        self.closed += 1


class Reaper:
    """A small HTTP server in the reaper's place. ``answers`` is played item by item: a status, or a function of the handler."""

    def __init__(self) -> None:
        self.reports: List[Report] = []
        self.tokens: List[Optional[str]] = []
        self.connections = 0
        self.answers: List[Any] = []
        self.extra: Dict[str, Any] = {}
        self.came = threading.Condition()
        self.surprises: List[BaseException] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.handle_error = self._keep_surprise  # type: ignore[method-assign]
        self._server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Reaper:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        assert not self.surprises, self.surprises

    def _keep_surprise(self, request: Any, client: Any) -> None:
        """A client that hangs up is part of the game; anything else (a report that cannot be read) fails the test."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.surprises.append(error)

    def wait_for(self, count: int, within_s: float = 20.0) -> List[Report]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.reports) >= count, within_s), "only %d reports came" % len(self.reports)
            return list(self.reports)

    def wait_until(self, good: Callable[[Report], bool], within_s: float = 20.0) -> Report:
        """The first report that is ``good``."""
        with self.came:
            assert self.came.wait_for(lambda: any(good(r) for r in self.reports), within_s), "none of %d reports is it" % len(self.reports)
            return next(r for r in self.reports if good(r))

    def _handler(self) -> Type[BaseHTTPRequestHandler]:
        reaper = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5

            def setup(self) -> None:
                super().setup()
                reaper.connections += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                how = reaper.answers.pop(0) if reaper.answers else 202
                if callable(how):
                    how(self)
                    return
                report = decode(body)
                if how == 202:
                    with reaper.came:
                        reaper.reports.append(report)
                        reaper.tokens.append(self.headers["Authorization"])
                        reaper.came.notify_all()
                self.reply(how, json.dumps({"seq": report.seq, **reaper.extra}) if how == 202 else "because of reasons")

            def reply(self, status: int, text: str, **headers: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler


def settings(tmp_path: Path, **changes: Any) -> Settings:
    base: Dict[str, Any] = {
        "reaper": "http://127.0.0.1:9", "token": "token-of-this-host", "resource": RESOURCE,
        "state_dir": tmp_path / "state", "spool_dir": tmp_path / "state" / "spool", "window_s": 60.0, "beat_s": 5.0,
    }  # fmt: skip
    return Settings(**{**base, **changes})


def gpu(index: int, clock: ManualClock, *ratios: float, **more: Any) -> GpuReading:
    """A reading whose samples lie a second apart and end now."""
    samples = tuple(Sample(clock.boot_s() - (len(ratios) - 1 - i), r) for i, r in enumerate(ratios))
    return GpuReading("GPU-%d" % index, "NVIDIA H100", samples, **more)
