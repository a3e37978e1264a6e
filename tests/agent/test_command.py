"""The command `reaper-agent` as a process, over the fake driver, against a small reaper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from agent.running import end_on_signals
from agent.status import alive, lines
from tests.agent.doubles import RESOURCE, Reaper
from tests.fakes import nvml
from tests.fakes.imds import FakeImds

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "token-of-this-host"


class Agent:
    """One installation of the agent in a folder."""

    def __init__(self, folder: Path, reaper: str, library: Optional[Path], **more: str) -> None:
        self.folder = folder
        self.gpus = nvml.State(folder / "gpus")
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "token").chmod(0o600)
        settings = {"reaper": reaper, "token_file": str(folder / "token"), "state_dir": str(folder / "state"), "window": "1s", "beat": "100ms", **more}
        (folder / "agent.toml").write_text("".join('%s = "%s"\n' % item for item in settings.items()))
        self.env: Dict[str, str] = {k: v for k, v in os.environ.items() if not k.startswith("REAPER_AGENT_") and k != nvml.STATE_VARIABLE}
        self.env["PYTHONPATH"] = str(ROOT)
        self.env["REAPER_AGENT_HOOK_SOCKET"] = str(folder / "hook.sock")
        if library is not None:
            self.env.update(nvml.environment(library, self.gpus), **{nvml.LOG_VARIABLE: str(folder / "nvml.log")})

    def command(self, *arguments: str) -> List[str]:
        return [sys.executable, "-m", "agent", arguments[0], "--config", str(self.folder / "agent.toml"), *arguments[1:]]

    def do(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*arguments), env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.command("run"), env=self.env, cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def test_it_samples_reports_shows_its_status_and_ends_cleanly(tmp_path: Path, library: Path) -> None:
    with Reaper() as reaper:
        reaper.extra = {"upcoming": {"action": "stop", "due_at": "2026-03-01T13:00:00Z", "because": "idle for 2h"}}
        agent = Agent(tmp_path, reaper.url, library, resource=RESOURCE)
        agent.gpus.write("count 2", "gpu 0 util 96", "gpu 0 proc %d 500" % os.getpid(), "gpu 1 util 0", "err 1 nvmlDeviceGetPowerUsage 3")
        with agent.start() as process:
            first = reaper.wait_for(2)[1]
            agent.gpus.write("count 2", "gpu * util 0", "err 0 nvmlDeviceGetUtilizationRates 15", "err 0 nvmlDeviceGetSamples 15")
            second = reaper.wait_until(lambda r: r.gpus[0].trouble == "lost" and r.gpus[0].peak_ratio is None)
            shown = agent.do("status")
            as_json = agent.do("status", "--json")
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=30)[1]
        after = agent.do("status")

    assert process.returncode == 0, errors
    assert (first.resource, first.sampler.state, first.expected_gpus) == (RESOURCE, "ok", 2)
    assert [g.peak_ratio for g in first.gpus] == [0.96, 0.0]
    assert [(g.power_w, g.processes) for g in first.gpus] == [(60.0, 1), (None, 0)]
    assert all((g.covered_s or 0) > 0.5 for g in first.gpus)
    assert first.loader is not None
    assert [tree.id for tree in first.loader] == ["pid-%d" % os.getpid()]
    # In a window of one second the kernel's counters may stand still, and then there is no share to tell.
    assert any(report.host is not None and report.host.cpu_ratio is not None for report in reaper.reports)
    assert json.loads((tmp_path / "state" / "jobs.json").read_text())["jobs"]
    assert [(g.peak_ratio, g.trouble) for g in second.gpus] == [(None, "lost"), (0.0, None)]
    assert set(reaper.tokens) == {"Bearer " + TOKEN}
    assert TOKEN not in errors
    assert (shown.returncode, after.returncode) == (0, 1)
    assert "NOT RUNNING" in after.stdout
    assert "machine    " + RESOURCE in shown.stdout
    assert "upcoming   stop at 2026-03-01T13:00:00Z: idle for 2h" in shown.stdout
    seen = json.loads(as_json.stdout.splitlines()[-1])
    assert (seen["running"], seen["answer"]["upcoming"]["action"], seen["sent"]["problem"]) == (True, "stop", None)
    assert (tmp_path / "nvml.log").read_text() == "shutdown\n"


def test_call_that_hangs_is_reported_while_heartbeats_go_on(tmp_path: Path, library: Path) -> None:
    with Reaper() as reaper:
        agent = Agent(tmp_path, reaper.url, library, resource=RESOURCE)
        agent.gpus.write("gpu 0 util 50")
        with agent.start() as process:
            reaper.wait_for(1)
            agent.gpus.write("gpu 0 util 50", "delay 0 nvmlDeviceGetMemoryInfo_v2 8000")
            reports = reaper.wait_for(5)
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=30)[1]

    last = reports[4]
    assert last.sampler.state == "stuck"
    assert (last.sampler.because or "").startswith("nvmlDeviceGetMemoryInfo of GPU 0 has not returned for")
    assert [(g.peak_ratio, g.mem_used_bytes) for g in last.gpus] == [(None, None)]
    assert process.returncode == 0, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_in_the_middle_of_a_wait_ends_the_agent(number: signal.Signals) -> None:
    """The handler runs in the thread that waits, which may hold the event's own lock just then."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    stop = threading.Event()
    try:
        end_on_signals(stop)
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(number)
            set_at_once = stop.is_set()
        assert (set_at_once, stop.wait(10.0)) == (False, True)
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


def test_reaper_that_is_away_gets_everything_later(tmp_path: Path, library: Path) -> None:
    with Reaper() as reaper:
        reaper.answers = [503, 503]
        agent = Agent(tmp_path, reaper.url, library, resource=RESOURCE)
        with agent.start() as process:
            reports = reaper.wait_for(4)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)

    seqs = sorted({r.seq for r in reports})
    assert len(seqs) == 4
    # No window is missing between them: each ends where the one before it ended, plus its own length.
    ends = {r.seq: r.seq - r.window_s * 1000 for r in reports}
    assert all(abs(ends[seqs[i + 1]] - seqs[i]) <= 2 for i in range(3))


def test_identity_comes_from_the_metadata_service_and_is_remembered(tmp_path: Path, library: Path) -> None:
    with Reaper() as reaper, FakeImds() as imds:
        agent = Agent(tmp_path, reaper.url, library, metadata=imds.endpoint)
        with agent.start() as process:
            report = reaper.wait_for(1)[0]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)

    assert report.resource == RESOURCE
    assert json.loads((tmp_path / "state" / "memory.json").read_text())["instance_type"] == "p5.48xlarge"


def test_once_sends_one_report(tmp_path: Path, library: Path) -> None:
    with Reaper() as reaper:
        done = Agent(tmp_path, reaper.url, library, resource=RESOURCE).do("run", "--once")

    assert (done.returncode, len(reaper.reports)) == (0, 1), done.stderr
    assert done.stdout.startswith("report taken by http://127.0.0.1:")


def test_once_fails_when_nobody_takes_it(tmp_path: Path, library: Path) -> None:
    done = Agent(tmp_path, "http://127.0.0.1:9", library, resource=RESOURCE).do("run", "--once")

    assert done.returncode == 1
    assert done.stdout.startswith("no report taken: http://127.0.0.1:9: no answer")


def test_machine_without_driver_and_gpu_reports_so(tmp_path: Path) -> None:
    if list(Path("/sys/bus/pci/devices").glob("*")) and _has_gpu():
        pytest.skip("this machine has a GPU")
    with Reaper() as reaper:
        done = Agent(tmp_path, reaper.url, None, resource=RESOURCE).do("run", "--once")

    assert done.returncode == 0, done.stderr
    (report,) = reaper.reports
    assert (report.sampler.state, report.expected_gpus, report.gpus) == ("no-gpu", 0, ())


def _has_gpu() -> bool:
    from agent import pci

    bus = pci.count()
    return bus is None or bus != pci.PciGpus(0, 0)


@pytest.mark.parametrize("command", [["run"], ["status"], ["status", "--json"]])
def test_bad_settings_end_with_two_and_every_problem(tmp_path: Path, command: List[str]) -> None:
    agent = Agent(tmp_path, "nowhere", None, window="soon", colour="red")
    done = agent.do(*command)

    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(": ")[2] for line in done.stderr.splitlines()] == ["reaper", "window", "colour"]


def test_missing_token_ends_with_two(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "http://127.0.0.1:9", None, resource=RESOURCE)
    (tmp_path / "token").unlink()
    done = agent.do("run")

    assert done.returncode == 2
    assert "token_file: %s cannot be read" % (tmp_path / "token") in done.stderr


def test_status_without_an_agent_ends_with_one(tmp_path: Path) -> None:
    done = Agent(tmp_path, "http://127.0.0.1:9", None).do("status")

    assert (done.returncode, done.stdout) == (1, "")
    assert "is the agent running? systemctl status reaper-agent" in done.stderr


def test_no_command_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, "-m", "agent"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 2
    assert "usage: reaper-agent" in done.stderr


def test_help_has_examples() -> None:
    done = subprocess.run([sys.executable, "-m", "agent", "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0
    assert "reaper-agent status --json | tail -n 1" in done.stdout


def test_status_and_help_load_neither_driver_nor_log() -> None:
    code = "import sys, agent.__main__; print(sorted({'structlog', 'pynvml', 'psutil', 'agent.gpu'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


SEEN: Dict[str, Any] = {"boot_id": "b", "written_boot_s": 1000.0, "window_s": 60.0}


def test_agent_that_said_goodbye_does_not_run() -> None:
    assert not alive({**SEEN, "stopped": True}, 1001.0, "b")


@pytest.mark.parametrize(
    ("now_s", "boot", "expected"),
    [(1001.0, "b", True), (1180.0, "b", True), (1190.0, "b", False), (1001.0, "other", False), (900.0, "b", False), (1001.0, None, False)],
    ids=["just_now", "three_windows", "later", "another_boot", "before_it_was_written", "boot_unknown"],
)
def test_agent_runs_when_its_file_is_fresh_and_of_this_boot(now_s: float, boot: Optional[str], expected: bool) -> None:
    assert alive(SEEN, now_s, boot) is expected


@pytest.mark.parametrize("seen", [{}, {"written_boot_s": "x", "window_s": 1}, {"report": None, "sent": None, "answer": None, "spool": None}])
def test_strange_status_file_is_shown_as_far_as_it_goes(seen: Dict[str, Any]) -> None:
    assert not alive(seen, 1.0, None)
    assert any("NOT RUNNING" in line for line in lines({**seen, "running": False}))


def test_figures_that_are_absent_are_shown_as_a_dash() -> None:
    shown = lines({"running": True, "report": {"gpus": [{"uuid": "GPU-1", "trouble": "lost"}], "sampler": {"state": "ok"}}})

    assert "  GPU-1  peak -  memory - of - MiB  processes -  (lost)" in shown
