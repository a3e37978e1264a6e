"""
The newest report as a page for Prometheus, on this machine's loopback address only.

Off unless `metrics_listen` is set; the server is loaded only then (it costs some 5 MiB).
The figures are those of the report and no others: what is absent there has no line
here, and of a report older than three windows only its age is shown.
"""

from __future__ import annotations

import socketserver
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type

from agent.clock import Clock
from agent.readings import Log
from agent.report import Gpu, Report
from agent.sender import Delivery, Outbox
from agent.version import VERSION

TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "reaper_agent_"
MOST_WINDOWS = 3  # after so many a report is no longer what is
_WITHIN_S = 5.0

_KINDS = frozenset(("ssh", "console", "desktop", "tmux", "screen", "cron", "setup", "container", "kernel", "editor", "terminal", "background"))

_Labels = Tuple[Tuple[str, str], ...]


class Page:
    """Metrics by name, in the exposition format; each with one help text and as many lines as there are labels."""

    def __init__(self) -> None:
        self._out: List[str] = []

    def add(self, name: str, kind: str, text: str, values: Iterable[Tuple[_Labels, Optional[float]]]) -> None:
        """Lines for what is known; nothing at all when none is."""
        known = [(labels, value) for labels, value in values if value is not None]
        if known:
            self._out += ["# HELP %s%s %s" % (PREFIX, name, text), "# TYPE %s%s %s" % (PREFIX, name, kind)]
            self._out += ["%s%s%s %s" % (PREFIX, name, _shown(labels), repr(value)) for labels, value in known]

    def one(self, name: str, kind: str, text: str, value: Optional[float]) -> None:
        self.add(name, kind, text, [((), value)])

    def render(self) -> bytes:
        return ("\n".join(self._out) + "\n").encode()


def _shown(labels: _Labels) -> str:
    return "{%s}" % ",".join('%s="%s"' % (name, _escaped(value)) for name, value in labels) if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# name, kind, help, figure
_GPU: Tuple[Tuple[str, str, str, Callable[[Gpu], Optional[float]]], ...] = (
    ("gpu_peak_ratio", "gauge", "Highest utilisation in the report window, 0 to 1.", lambda g: g.peak_ratio),
    ("gpu_mean_ratio", "gauge", "Mean utilisation over the report window, 0 to 1.", lambda g: g.mean_ratio),
    ("gpu_covered_seconds", "gauge", "Time of the report window that samples cover.", lambda g: g.covered_s),
    ("gpu_memory_used_bytes", "gauge", "Memory used beyond the driver's reserve.", lambda g: g.mem_used_bytes),
    ("gpu_memory_size_bytes", "gauge", "Memory in all.", lambda g: g.mem_total_bytes),
    ("gpu_power_watts", "gauge", "Power drawn.", lambda g: g.power_w),
    ("gpu_energy_joules_total", "counter", "Energy drawn since the driver was loaded.", lambda g: g.energy_j),
    ("gpu_processes", "gauge", "Processes that hold the GPU, those of nobody's work left out.", lambda g: g.processes),
)


def render(report: Optional[Report], delivery: Delivery, now_s: float) -> bytes:
    """The page at the boot clock's ``now_s``. ``report`` None: there has been none."""
    page = Page()
    resource = report.resource if report is not None else ""
    page.add("info", "gauge", "The agent and the machine it speaks for.", [((("version", VERSION), ("resource", resource)), 1)])
    page.one("spool_reports", "gauge", "Reports that wait to be sent.", delivery.spooled)
    page.one("spool_bytes", "gauge", "Their size.", delivery.spooled_bytes)
    page.one("reports_dropped_total", "counter", "Reports lost since the start.", delivery.dropped)
    page.one("reports_refused_total", "counter", "Reports that the reaper refused since the start.", delivery.refused)
    if report is None:
        return page.render()
    age_s = max(0.0, now_s - report.seq / 1000.0)
    page.one("report_age_seconds", "gauge", "Since the end of the window that the figures are of.", round(age_s, 3))
    if age_s <= MOST_WINDOWS * report.window_s:
        _figures(page, report)
    return page.render()


def _figures(page: Page, report: Report) -> None:
    page.add("sampler_ok", "gauge", "Whether the driver answers.", [((("state", report.sampler.state),), int(report.sampler.state == "ok"))])
    page.one("window_seconds", "gauge", "Length of the report window.", report.window_s)
    page.one("expected_gpus", "gauge", "GPUs that this machine should have.", report.expected_gpus)
    labels: Mapping[str, _Labels] = {gpu.uuid: (("uuid", gpu.uuid), ("model", gpu.model or "")) for gpu in report.gpus}
    for name, kind, text, figure in _GPU:
        page.add(name, kind, text, [(labels[gpu.uuid], figure(gpu)) for gpu in report.gpus])
    slices = [((("uuid", one.uuid), ("gpu", gpu.uuid)), one) for gpu in report.gpus for one in gpu.slices or ()]
    page.add("slice_memory_used_bytes", "gauge", "Memory used on an instance of a MIG GPU.", [(where, one.mem_used_bytes) for where, one in slices])
    page.add("slice_processes", "gauge", "Processes on an instance of a MIG GPU.", [(where, one.processes) for where, one in slices])
    trees = [((("tree", tree.id),), tree.wait_ratio) for tree in report.loader or ()]
    page.add("data_wait_ratio", "gauge", "Share of the window in which a process tree with idle GPUs waited for data.", trees)
    exact = [((("tree", tree.id),), tree.exact_wait_ratio) for tree in report.loader or ()]
    page.add("data_wait_exact_ratio", "gauge", "The same as the job itself measured it, with its loader hook.", exact)
    page.add("data_wait_exact_batches", "gauge", "Batches over which it did.", [((("tree", tree.id),), tree.batches) for tree in report.loader or ()])
    if report.presence is not None:
        kinds = sorted({one.kind for one in report.presence.at_work} & _KINDS)
        sessions = [((("kind", kind),), sum(one.kind == kind for one in report.presence.at_work)) for kind in kinds]
        page.add("at_work", "gauge", "Sessions, kernels, editors and jobs of people, in use or not.", sessions)
        page.one("at_work_unread", "gauge", "Things that could not be seen of them; nobody is found idle meanwhile.", len(report.presence.unread))
    if report.links is not None:
        page.one("linked_machines", "gauge", "Other machines that processes with a GPU are connected to.", len(report.links.peers))
    host = report.host
    if host is not None:
        page.one("host_cpu_ratio", "gauge", "CPU used, of all cores.", host.cpu_ratio)
        page.one("host_memory_used_ratio", "gauge", "Memory used.", host.mem_used_ratio)
        page.one("host_disk_bytes_per_second", "gauge", "Read and written on local disks.", host.disk_bytes_per_s)
        page.one("host_network_bytes_per_second", "gauge", "Received and sent.", host.net_bytes_per_s)


class Exporter:
    """An outbox that shows each report on the page and passes it on. ``start`` begins to serve."""

    def __init__(self, outbox: Outbox, clock: Clock, log: Log) -> None:
        self._outbox, self._clock, self._log = outbox, clock, log
        self._newest: Optional[Report] = None
        self._server: Optional[HTTPServer] = None
        self.delivery, self.forget = outbox.delivery, outbox.forget

    def hand(self, report: Report) -> None:
        self._newest = report
        self._outbox.hand(report)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._outbox.close()

    def page(self) -> bytes:
        return render(self._newest, self._outbox.delivery(), self._clock.boot_s())

    def start(self, address: Tuple[str, int]) -> Optional[int]:
        """Serve in a thread of its own; the port, or None (logged) when it cannot be had: reports matter more."""
        try:
            self._server = _Server(address, _handler(self.page))
        except OSError as error:
            self._log.error("metrics not served", address="%s:%d" % address, because=error.strerror or str(error))
            return None
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        port = int(self._server.server_address[1])
        self._log.info("metrics served", address="%s:%d" % (address[0], port))
        return port


class _Server(HTTPServer):
    """One request at a time: a page is made in a millisecond, and a crowd has to wait."""

    request_queue_size = 8

    def __init__(self, address: Tuple[str, int], handler: Type[BaseHTTPRequestHandler]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without HTTPServer's lookup of our own name, which may hang

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no event."""


def _handler(page: Callable[[], bytes]) -> Type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _WITHIN_S
        server_version, sys_version = "reaper-agent", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.answer(404, b"the page is /metrics\n", {})
            else:
                self.answer(200, page(), {"Content-Type": TYPE})

        def answer(self, status: int, body: bytes, headers: Dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler
