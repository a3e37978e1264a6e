"""The doctor: every finding has what is lost and what to do, and no report is sent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from agent import doctor, doctor_driver, doctor_work, hook
from agent.config import Settings
from agent.doctor_driver import FAIL, OK, WARN, Check
from agent.identity import Identity, IdentityError
from agent.pci import PciGpus
from tests.agent.doubles import RESOURCE, Lines, Reaper
from tests.agent.doubles import settings as make_settings
from tests.agent.driven import EVERY_CALL
from tests.fakes import nvml

ROOT = Path(__file__).resolve().parents[2]


def states(checks: List[Check]) -> Dict[str, str]:
    for check in checks:
        assert (check.state == OK) == (check.lost is None) == (check.remedy is None), check
    return {check.name: check.state for check in checks}


# --- people and the hook ---


def test_hook_that_an_agent_reads_is_well(tmp_path: Path, log: Lines) -> None:
    os.chmod(tmp_path, 0o755)
    folder = tmp_path / "run"
    door = hook.Socket(folder / "hook.sock", log)
    assert door.open()
    try:
        found = doctor_work.hook(folder / "hook.sock")
        os.chmod(folder, 0o700)
        closed = doctor_work.hook(folder / "hook.sock")
    finally:
        door.close()

    assert found.state == OK or "chmod o+x" in (found.remedy or "") and str(folder) not in (found.remedy or "").split()
    assert closed.state == WARN
    assert str(folder) in (closed.remedy or "")


@pytest.mark.parametrize(
    ("made", "expected", "words"), [("nothing", WARN, "No such file"), ("a file", WARN, "is no socket"), ("left behind", WARN, "nobody reads"), ("off", OK, "turned off")]
)
def test_hook_that_nobody_reads_is_told_with_what_is_lost(tmp_path: Path, made: str, expected: str, words: str) -> None:
    path: Optional[Path] = tmp_path / "hook.sock"
    if made == "a file":
        (tmp_path / "hook.sock").write_text("")
    if made == "left behind":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as old:
            old.bind(str(path))
    check = doctor_work.hook(path if made != "off" else None)
    states([check])

    assert (check.state, words in check.found) == (expected, True)
    assert expected == OK or "the estimate stands" in (check.lost or "")


def test_sessions_that_cannot_be_seen_are_told(tmp_path: Path) -> None:
    (tmp_path / "pts").mkdir()
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "7" / "ns").mkdir()
    os.symlink("net:[1]", tmp_path / "7" / "ns" / "net")

    assert states(doctor_work.people(7, tmp_path, tmp_path / "pts")) == {"terminals": OK, "sessions": OK}
    assert states(doctor_work.people(8, tmp_path, tmp_path / "none")) == {"terminals": WARN, "sessions": WARN}


# --- rights ---


@pytest.mark.parametrize(
    ("files", "bus", "expected"),
    [
        (["nvidiactl", "nvidia0", "nvidia-uvm"], PciGpus(1, 0), OK),
        ([], PciGpus(0, 0), OK),
        ([], PciGpus(8, 0), FAIL),
        ([], None, FAIL),
    ],
    ids=["open", "no_gpu", "gpu_without_device_files", "bus_unreadable"],
)
def test_device_files(tmp_path: Path, files: List[str], bus: Optional[PciGpus], expected: str) -> None:
    for name in files:
        (tmp_path / name).write_text("")

    assert states(doctor.devices(tmp_path, lambda: bus)) == {"devices": expected}


def test_device_file_that_may_not_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (check,) = doctor.devices(tmp_path, lambda: PciGpus(1, 0))

    assert (check.state, str(tmp_path / "nvidia0") in check.found) == (FAIL, True)


def process(proc: Path, pid: int, io: Optional[str] = "rchar: 1\nread_bytes: 0\n") -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text("%d (x) S %s" % (pid, " ".join(["0"] * 49)))
    if io is not None:
        (proc / str(pid) / "io").write_text(io)


def test_visible_processes_whose_data_path_can_be_read(tmp_path: Path) -> None:
    process(tmp_path, 1)
    process(tmp_path, 7)

    assert states(doctor.processes([7], tmp_path))["data path"] == OK


def test_data_path_that_may_not_be_read_is_a_warning(tmp_path: Path) -> None:
    process(tmp_path, 1)
    process(tmp_path, 7, io=None)
    checks = doctor.processes([7], tmp_path)

    assert states(checks)["data path"] == WARN
    assert "CAP_SYS_PTRACE" in (checks[-1].remedy or "")


def test_hidden_processes_fail(tmp_path: Path) -> None:
    assert states(doctor.processes([], tmp_path)) == {"processes": FAIL}


# --- driver ---


def test_healthy_gpus(driver: nvml.State) -> None:
    driver.write("count 2", "gpu 0 proc %d 100" % os.getpid())
    checks, pids = doctor_driver.gpus()

    assert states(checks) == {"driver": OK, "gpu 0": OK, "gpu 1": OK}
    assert "580.65.06, 2 GPUs" in checks[0].found
    assert pids == [os.getpid()]


@pytest.mark.parametrize(
    ("lines", "state", "words"),
    [
        (["err 0 nvmlDeviceGetTotalEnergyConsumption 3"], WARN, "energy no (unsupported)"),
        (["err 0 nvmlDeviceGetSamples 3"], OK, "utilisation ok"),
        (["err 0 nvmlDeviceGetSamples 4", "err 0 nvmlDeviceGetUtilizationRates 4"], FAIL, "utilisation no (no permission)"),
        (["gpu 0 mig 1"], WARN, "utilisation not measured (MIG is on)"),
        (["err 0 nvmlDeviceGetHandleByIndex_v2 15"], FAIL, "lost"),
        (["err 0 %s 16" % name for name in EVERY_CALL], FAIL, "reset required"),
    ],
    ids=["one_counter_less", "rate_instead_of_the_buffer", "may_not_look", "mig", "lost", "needs_a_reset"],
)
def test_gpu_that_does_not_tell_everything(driver: nvml.State, lines: List[str], state: str, words: str) -> None:
    driver.write("count 2", *lines)
    checks, _ = doctor_driver.gpus()

    assert states(checks) == {"driver": OK, "gpu 0": state, "gpu 1": OK}
    assert words in checks[1].found


@pytest.mark.parametrize(("code", "word"), [(9, "no-driver"), (18, "mismatch"), (4, "no-permission"), (999, "failed")])
def test_driver_that_does_not_start(driver: nvml.State, code: int, word: str) -> None:
    driver.write("init %d" % code)
    checks, _ = doctor_driver.gpus()

    assert [(check.name, check.state, check.found) for check in checks] == [("driver", FAIL, word)]
    assert states(checks)


def test_driver_that_hangs_is_named_and_the_doctor_does_not_hang(driver: nvml.State) -> None:
    driver.write("delay 0 nvmlDeviceGetPowerUsage 1500")
    checks, _ = doctor_driver.gpus(within_s=0.3)

    assert states(checks)["driver"] == FAIL
    assert "nvmlDeviceGetPowerUsage of GPU 0 has not returned" in checks[-1].found


# --- identity, clock, reaper, files ---


def test_identity(tmp_path: Path) -> None:
    def refuses(endpoint: str) -> Identity:
        raise IdentityError("metadata service: no answer")

    unnamed = make_settings(tmp_path, resource=None)
    checks = [
        doctor.metadata(make_settings(tmp_path)),
        doctor.metadata(unnamed, lambda endpoint: Identity(RESOURCE)),
        doctor.metadata(unnamed, refuses),
    ]

    assert [check.state for check in checks] == [OK, OK, FAIL]
    assert all(states([check]) for check in checks)


@pytest.mark.parametrize(("which", "there", "state"), [(7, True, OK), (None, True, WARN), (7, False, FAIL)], ids=["well", "no_boot_clock", "no_boot_id"])
def test_boot_clock(tmp_path: Path, which: Optional[int], there: bool, state: str) -> None:
    if there:
        (tmp_path / "boot_id").write_text("b\n")

    assert states([doctor.boot_clock(which, tmp_path / "boot_id")]) == {"boot": state}


class Door(Reaper):
    """Healthy, with a Date; what it answers to a POST is set. It keeps what was posted."""

    def __init__(self, post: int = 415, health: int = 200, date: str = "Sun, 01 Mar 2026 12:00:00 GMT") -> None:
        super().__init__()
        self.posted: List[Any] = []
        door = self
        base = self._server.RequestHandlerClass

        class Handler(base):  # type: ignore[misc,valid-type]
            def date_time_string(self, timestamp: Any = None) -> str:
                return date

            def do_GET(self) -> None:
                door.posted.append(self.path)
                self.reply(health, "alive")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                door.posted.append((self.path, self.headers["Authorization"], self.headers["Content-Type"], body))
                self.reply(post, "x")

        self._server.RequestHandlerClass = Handler


MARCH = 1772366400.0  # 2026-03-01T12:00:00Z


def visit(tmp_path: Path, door: Door, now_s: float = MARCH, **changes: Any) -> List[Check]:
    with door:
        return doctor.reaper(make_settings(tmp_path, **{"reaper": door.url, **changes}), lambda: now_s)


def test_reaper_that_takes_the_token_is_asked_without_a_report(tmp_path: Path) -> None:
    door = Door()
    checks = visit(tmp_path, door)

    assert states(checks) == {"reaper": OK, "clock": OK, "token": OK}
    assert door.posted == ["/healthz", ("/v1/reports", "Bearer token-of-this-host", "text/plain", b"")]
    assert "token-of-this-host" not in repr(checks)


@pytest.mark.parametrize(
    ("door", "now_s", "expected"),
    [
        (lambda: Door(post=401), MARCH, {"reaper": OK, "clock": OK, "token": FAIL}),
        (lambda: Door(post=429), MARCH, {"reaper": OK, "clock": OK, "token": WARN}),
        (lambda: Door(health=404, post=404), MARCH, {"reaper": FAIL, "clock": OK, "token": WARN}),
        (Door, MARCH + 90, {"reaper": OK, "clock": WARN, "token": OK}),
        (Door, MARCH - 90, {"reaper": OK, "clock": WARN, "token": OK}),
        (lambda: Door(date="now"), MARCH, {"reaper": OK, "clock": WARN, "token": OK}),
    ],
    ids=["token_refused", "too_often", "another_server", "clock_ahead", "clock_behind", "no_date"],
)
def test_reaper_that_is_not_quite_right(tmp_path: Path, door: Callable[[], Door], now_s: float, expected: Dict[str, str]) -> None:
    assert states(visit(tmp_path, door(), now_s)) == expected


def test_reaper_that_is_away(tmp_path: Path) -> None:
    assert states(doctor.reaper(make_settings(tmp_path))) == {"reaper": FAIL}


def test_token_that_cannot_be_read_is_not_asked_about(tmp_path: Path) -> None:
    door = Door()
    checks = visit(tmp_path, door, token=None, token_file=tmp_path / "none")

    assert states(checks)["token"] == FAIL
    assert door.posted == ["/healthz"]


def test_folders(tmp_path: Path) -> None:
    settings: Settings = make_settings(tmp_path)
    before = states(doctor.files(settings))
    settings.spool_dir.mkdir(parents=True)
    for number in range(3):
        (settings.spool_dir / ("%d.json" % number)).write_text("{}")
    checks = doctor.files(make_settings(tmp_path, spool_reports=4))

    assert before == {"state": OK, "spool": OK}
    assert states(checks) == {"state": OK, "spool": OK, "backlog": WARN}
    assert "3 reports" in checks[1].found
    assert [path.name for path in settings.state_dir.iterdir()] == ["spool"]  # nothing of ours stays


def test_folder_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    assert states(doctor.files(make_settings(tmp_path))) == {"state": FAIL, "spool": FAIL}


# --- the command ---


def run(tmp_path: Path, *words: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    lines = {"token": "token-of-this-host", "resource": RESOURCE, "state_dir": str(tmp_path / "state"), **settings}
    (tmp_path / "agent.toml").write_text("".join('%s = "%s"\n' % item for item in lines.items()))
    env = {k: v for k, v in os.environ.items() if not k.startswith("REAPER_AGENT_")}
    line = [sys.executable, "-m", "agent", "doctor", "--config", str(tmp_path / "agent.toml"), *words]
    return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_command_ends_with_one_when_a_check_fails_and_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, reaper="http://127.0.0.1:9")

    assert (done.returncode, done.stderr) == (1, "")
    shown = done.stdout.splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("fail  reaper"))
    assert (shown[at + 1].split()[0], shown[at + 2].split()[0]) == ("lost:", "do:")


def test_command_tells_machines_in_one_object(tmp_path: Path) -> None:
    with Door() as door:
        done = run(tmp_path, "--json", reaper=door.url)
    document = json.loads(done.stdout.splitlines()[-1])

    assert document["ok"] is (done.returncode == 0)
    assert {"name", "state", "found", "lost", "remedy"} == set(document["checks"][0])
    assert {check["name"] for check in document["checks"]} >= {"user", "devices", "driver", "processes", "identity", "reaper", "token", "boot", "spool"}


def test_settings_that_cannot_be_read_are_findings_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", reaper="nowhere", window="soon")
    document = json.loads(done.stdout.splitlines()[-1])
    failed = [check["found"] for check in document["checks"] if check["name"] == "settings"]

    assert done.returncode == 1
    assert len(failed) == 2
    assert {check["name"] for check in document["checks"]} >= {"driver", "boot"}
