"""The page for Prometheus: the report's figures, over real HTTP on loopback."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from agent.config import ConfigError, load
from agent.exporter import Exporter, render
from agent.report import AtWork, Gpu, Host, Links, Loader, Presence, Report, Sampler, Slice
from agent.sender import Delivery
from agent.version import VERSION
from tests.agent.doubles import BOOT, RESOURCE, KeptReports, Lines, ManualClock

ROOT = Path(__file__).resolve().parents[2]
FULL = Report(
    RESOURCE, BOOT, 1060.0, 1060000, 60.0, 0.0, Sampler("ok"), expected_gpus=2,
    gpus=(
        Gpu("GPU-a", "NVIDIA H100", 0.5, 0.25, 59.5, 300, 1 << 30, 80 << 30, 412.5, 9e6, 3),
        Gpu("GPU-b", 'odd "\\ name', trouble="lost", slices=(Slice("MIG-1", 20 << 20, 10 << 30, 0), Slice("MIG-2"))),
    ),
    loader=(Loader("pid-7", 0.75, exact_wait_ratio=0.5, exact_s=59.0, batches=120), Loader("pid-8")),
    host=Host(0.1, 64, 0.5, 1000.0, 20.0),
    presence=Presence((AtWork("ssh", "ada"), AtWork("ssh", "mia"), AtWork("kernel", "ada")), ("kernels",)), links=Links(True, ("10.0.0.1",), ("10.0.0.2",)),
)  # fmt: skip
_LINE = re.compile(r'^(reaper_agent_[a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)$')


def figures(page: bytes) -> Dict[str, float]:
    """Name with labels to value; every line is one of the format's, and each name has its help and type before it."""
    found: Dict[str, float] = {}
    said = set()
    for line in page.decode().splitlines():
        if line.startswith("# "):
            said.add(tuple(line.split(" ", 3)[1:3]))
            continue
        match = _LINE.match(line)
        assert match is not None, line
        assert {("HELP", match.group(1)), ("TYPE", match.group(1))} <= said
        assert match.group(1) + (match.group(2) or "") not in found
        found[match.group(1)[len("reaper_agent_") :] + (match.group(2) or "")] = float(match.group(3))
    return found


def test_page_has_the_reports_figures_and_only_those() -> None:
    page = figures(render(FULL, Delivery(spooled=3, spooled_bytes=700, dropped=1, refused=2), 1075.0))

    assert page['gpu_peak_ratio{uuid="GPU-a",model="NVIDIA H100"}'] == 0.5
    assert page['gpu_memory_used_bytes{uuid="GPU-a",model="NVIDIA H100"}'] == 1 << 30
    assert page['gpu_energy_joules_total{uuid="GPU-a",model="NVIDIA H100"}'] == 9e6
    assert [name for name in page if "GPU-b" in name and "slice" not in name] == []
    assert page['slice_memory_used_bytes{uuid="MIG-1",gpu="GPU-b"}'] == 20 << 20
    assert page['slice_processes{uuid="MIG-1",gpu="GPU-b"}'] == 0
    assert (page['data_wait_exact_ratio{tree="pid-7"}'], page['data_wait_exact_batches{tree="pid-7"}']) == (0.5, 120)
    assert (page['at_work{kind="ssh"}'], page['at_work{kind="kernel"}'], page["at_work_unread"], page["linked_machines"]) == (2, 1, 1, 1)
    assert not any("ada" in name or "10.0.0" in name for name in page)
    assert page['data_wait_ratio{tree="pid-7"}'] == 0.75
    assert not any("MIG-2" in name or "pid-8" in name for name in page)
    assert (page["host_cpu_ratio"], page["host_disk_bytes_per_second"], page["expected_gpus"]) == (0.1, 1000.0, 2)
    assert (page["spool_reports"], page["reports_dropped_total"], page["reports_refused_total"]) == (3, 1, 2)
    assert (page["report_age_seconds"], page['sampler_ok{state="ok"}']) == (15.0, 1)
    assert page['info{version="%s",resource="%s"}' % (VERSION, RESOURCE)] == 1


def test_name_of_a_product_cannot_break_the_page() -> None:
    gpu = replace(FULL.gpus[1], model='a"b\\c\nd', peak_ratio=0.0)
    page = figures(render(replace(FULL, gpus=(gpu,)), Delivery(), 1060.0))

    assert page['gpu_peak_ratio{uuid="GPU-b",model="a\\"b\\\\c\\nd"}'] == 0.0


def test_old_report_has_an_age_and_no_figures() -> None:
    page = figures(render(FULL, Delivery(), 1060.0 + 181.0))

    assert page["report_age_seconds"] == 181.0
    assert not any(name.startswith(("gpu_", "host_", "sampler_", "expected_")) for name in page)


def test_before_the_first_report_there_is_only_the_agent() -> None:
    assert set(figures(render(None, Delivery(), 5.0))) >= {'info{version="%s",resource=""}' % VERSION, "spool_reports"}
    assert not any(name.startswith("gpu_") for name in figures(render(None, Delivery(), 5.0)))


def test_page_can_be_read_by_prometheus_own_client() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(render(FULL, Delivery(), 1060.0).decode())}

    assert families["reaper_agent_gpu_energy_joules"].type == "counter"
    assert all(family.documentation for family in families.values())


@pytest.fixture
def exporter(log: Lines) -> Any:
    made = Exporter(KeptReports(), ManualClock(1060.0), log)  # type: ignore[arg-type]
    yield made
    made.close()


def ask(port: int, method: str, path: str) -> "tuple[int, str, bytes]":
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_page_is_served_and_reports_are_passed_on(exporter: Exporter) -> None:
    port = exporter.start(("127.0.0.1", 0)) or 0
    exporter.hand(FULL)
    status, kind, page = ask(port, "GET", "/metrics")

    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert figures(page)['gpu_peak_ratio{uuid="GPU-a",model="NVIDIA H100"}'] == 0.5
    assert exporter._outbox.reports == [FULL]  # type: ignore[attr-defined]
    assert [ask(port, *what)[0] for what in (("GET", "/"), ("POST", "/metrics"), ("GET", "/metrics?x=1"))] == [404, 501, 200]


def test_client_that_says_nothing_and_leaves_costs_nothing(exporter: Exporter) -> None:
    port = exporter.start(("127.0.0.1", 0)) or 0
    socket.create_connection(("127.0.0.1", port)).close()

    assert ask(port, "GET", "/metrics")[0] == 200


def test_port_that_is_taken_costs_the_page_and_not_the_agent(exporter: Exporter, log: Lines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert exporter.start(("127.0.0.1", other.getsockname()[1])) is None
    exporter.hand(FULL)

    assert "metrics not served" in log.events()
    assert exporter._outbox.reports == [FULL]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:9465", ("127.0.0.1", 9465)), ("[::1]:9465", ("::1", 9465))],
)
def test_loopback_address_is_taken(listen: str, expected: "tuple[str, int]") -> None:
    assert load(None, {"REAPER_AGENT_REAPER": "https://reaper", "REAPER_AGENT_METRICS_LISTEN": listen}).metrics_listen == expected


@pytest.mark.parametrize("listen", ["0.0.0.0:9465", "10.0.0.5:9465", "[::]:9465", ":9465", "host:9465", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"])
def test_any_other_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="METRICS_LISTEN: is .*127.0.0.1:9465"):
        load(None, {"REAPER_AGENT_REAPER": "https://reaper", "REAPER_AGENT_METRICS_LISTEN": listen})


def test_server_is_loaded_only_when_it_is_asked_for() -> None:
    code = (
        "import sys, agent.__main__, agent.loop, agent.gpu, agent.sender, agent.disks, agent.people, agent.nvml; agent.nvml.load()\n"
        "print(sorted({'http', 'http.server', 'email', 'socketserver', 'agent.exporter', 'structlog', 'importlib.metadata', 'subprocess', 'psutil', 'logging',"
        " 'argparse', 'rich', 'random'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
