"""`reaper run`: one cycle in this process, and the daemon as a process of its own."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reaper.cli.main import main
from reaper.cli.run import Ending, address, loopback
from reaper.errors import Denied, ReadOnly, StoreError, UsageError
from reaper.model.mark import Stage
from reaper.model.policy import Mode
from reaper.wiring import build, open_state
from tests import builders as make
from tests.builders import HERE, MINUTE
from tests.cli.conftest import ENFORCING, OBSERVING, Room
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2, strict_server

SOON_S = 30.0


# --- one cycle --------------------------------------------------------------------------------------------------------


def test_once_stops_what_is_due_and_prints_the_plan(room: Room) -> None:
    made = room.due()
    answer = room.reaper("run", "--once")

    assert answer.code == 0
    assert f"stop trainer ({made.id}): done" in answer.out
    assert room.cloud.verbs() == [("stop", made.id)]
    with room.store() as store:
        assert store.held_lease() is None


def test_once_moves_marks_from_cycle_to_cycle(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report()
    first = room.reaper("run", "--once", "--json").json["machines"][0]["mark"]
    room.clock.advance(MINUTE)
    room.report(minutes=1, until=room.clock.now())
    second = room.reaper("run", "--once", "--json").json["machines"][0]["mark"]

    assert (first["stage"], first["due_in_s"]) == ("warned", 300)
    assert (second["stage"], second["due_in_s"]) == ("warned", 240)


@pytest.mark.parametrize("how", ["--observe", "the configuration"])
def test_observing_never_sends_a_verb(room: Room, how: str) -> None:
    if how == "the configuration":
        room.configure(OBSERVING)
    room.due()
    words = ["--observe"] if how == "--observe" else []
    answer = room.reaper("run", "--once", "--json", *words)

    assert answer.code == 0
    assert answer.json["mode"] == "observe"
    assert room.cloud.verbs() == []


def test_a_process_that_observes_holds_clouds_whose_verbs_raise(room: Room) -> None:
    made = room.machine()
    parts = build(room.configuration, room.state, Mode.OBSERVE, clock=room.clock, clouds={"aws": room.cloud})
    try:
        for verb in (parts.clouds["aws"].stop, parts.clouds["aws"].start):
            with pytest.raises(ReadOnly):
                verb(made.id)
    finally:
        parts.store.close()

    assert room.cloud.verbs() == []


def test_once_is_refused_where_another_reaper_leads(room: Room) -> None:
    room.due()
    room.led_by_another()
    answer = room.reaper("run", "--once", "--json")

    assert answer.code == 4
    assert answer.json["kind"] == "Refused"
    assert room.cloud.verbs() == []


def test_once_tells_when_no_cloud_or_no_machine_is_there(room: Room) -> None:
    room.cloud.fail("list", Denied("no usable AWS credentials"))
    unreadable = room.reaper("run", "--once")
    room.cloud.places.add(HERE)
    empty = room.reaper("run", "--once")

    assert (unreadable.code, empty.code) == (1, 3)
    assert "AWS_PROFILE" in unreadable.out
    assert "not readable; tried again each cycle" in unreadable.err


def test_a_cycle_that_breaks_off_is_a_failure(room: Room) -> None:
    def break_off(*_: object) -> None:
        raise StoreError("disk is full")

    room.cloud.before = break_off
    answer = room.reaper("run", "--once", "--json")

    assert answer.code == 1
    assert answer.json["kind"] == "CycleFailed"
    assert "disk is full" in answer.err


def test_a_refused_configuration_does_not_start(room: Room) -> None:
    room.configure(ENFORCING + "\n[polcy.x]\n")

    assert room.reaper("run", "--once").code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("http://0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize("text", ["9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ""])
def test_addresses_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        address(text)


def test_a_certificate_needs_its_key(room: Room) -> None:
    assert room.reaper("run", "--once", "--tls-cert", "x").code == 2


@pytest.mark.parametrize("role", ["ingest", "control"])
@pytest.mark.parametrize("store", [None, "sqlite:////tmp/state.db"], ids=["the usual file", "a file by its URL"])
def test_a_role_needs_a_store_that_processes_elsewhere_can_share(room: Room, role: str, store: str | None) -> None:
    answer = room.reaper("run", "--role", role, *(["--store", store] if store is not None else []))

    assert answer.code == 2
    assert f"--role {role} shares its store" in answer.err
    assert "postgresql://USER@HOST/DATABASE" in answer.err


def test_a_door_runs_no_cycle(room: Room) -> None:
    answer = room.reaper("run", "--role", "ingest", "--once", "--store", "postgresql://nobody@/none")

    assert answer.code == 2
    assert "--once runs a cycle" in answer.err


def test_a_database_that_cannot_be_reached_ends_the_start_in_one_line_without_its_password(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REAPER_STORE", "postgresql://reaper:s3cret@127.0.0.1:1/reaper")
    for words in (["run", "--role", "ingest"], ["run", "--role", "control", "--once"], ["audit"], ["token", "list"]):
        answer = room.reaper(*words)

        assert answer.code == 1
        assert "postgresql://reaper@127.0.0.1:1/reaper cannot be reached" in answer.err.splitlines()[-1]
        assert "s3cret" not in answer.out + answer.err


def test_every_command_works_on_a_database(room: Room, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REAPER_STORE", database)
    made = room.machine()
    issued = room.reaper("token", "issue", str(made.id), "--json").json
    once = room.reaper("run", "--once", "--role", "control", "--json")

    assert once.code == 0
    assert [m["resource"] for m in once.json["machines"]] == [str(made.id)]
    assert room.reaper("token", "list", "--json").json["tokens"][0]["id"] == issued["id"]
    assert room.reaper("plan", "--json").code in (0, 3)
    assert room.reaper("snooze", str(made.id), "--for", "1h", "--reason", "demo").code == 0
    assert room.reaper("why", str(made.id)).code == 0
    assert "demo" in room.reaper("audit").out
    assert room.reaper("inventory").code == 0
    assert not (room.state / "state.db").exists()


@pytest.mark.parametrize(("host", "is_it"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False)])
def test_what_is_loopback(host: str, is_it: bool) -> None:
    assert loopback(host) is is_it


def test_a_nudge_ends_one_wait_and_an_end_all() -> None:
    ending = Ending()
    ending.nudge()

    assert ending.wait(60) is False
    assert ending.wait(0) is False
    ending.set()
    assert ending.wait(60) is True
    assert ending.wait(60) is True


# --- with a real API --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoEc2]:
    with strict_server() as server:
        server.launch("trainer", team="ml", owner="ada")
        server.launch("mystery")
        yield server


def at(moto: MotoEc2, text: str = OBSERVING) -> str:
    aws = f'[clouds.aws]\nendpoint = "{moto.url}"\naccounts = ["{ACCOUNT}"]\nregions = ["us-east-1"]'
    return text.replace('[clouds.aws]\naccounts = ["111122223333"]\nregions = ["eu-west-1"]', aws)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("words", [["plan"], ["run", "--once"]])
def test_a_real_listing_is_shown_and_nothing_is_sent_that_changes_anything(room: Room, moto: MotoEc2, words: list[str]) -> None:
    (room.folder / "reaper.toml").write_text(at(moto), encoding="utf-8")
    moto.calls.clear()
    code = main([*words, "--state", str(room.state), "--config", str(room.folder / "reaper.toml")])
    out = room.capsys.readouterr().out

    assert code == 0
    assert f"aws:{ACCOUNT}:us-east-1:instance:i-" in out
    assert "trainer" in out
    assert "of them 2 without an agent, 1 without an owner tag, 1 without a policy" in out
    assert "DescribeInstances" in moto.actions()
    assert moto.mutations() == []


# --- as a process -----------------------------------------------------------------------------------------------------


class Process:
    """`reaper run` with its log lines as they come."""

    def __init__(self, started: subprocess.Popen[str]) -> None:
        self.started = started
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.started.stderr is not None
        for line in self.started.stderr:
            self._new.put(line)

    def line(self, part: str) -> str:
        """The next log line that holds ``part``."""
        end = time.monotonic() + SOON_S
        while time.monotonic() < end:
            try:
                line = self._new.get(timeout=0.2)
            except queue.Empty:
                assert self.started.poll() is None, "".join(self.lines)
                continue
            self.lines.append(line)
            if part in line:
                return line
        raise AssertionError(f"no line with {part!r} in:\n{''.join(self.lines)}")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.address + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def eventually(self, path: str, good: Callable[[int, str], bool]) -> str:
        end = time.monotonic() + SOON_S
        while time.monotonic() < end:
            status, text = self.get(path)
            if good(status, text):
                return text
            time.sleep(0.05)
        raise AssertionError(f"{path} never became good: {status} {text}")

    @property
    def address(self) -> str:
        line = next(line for line in self.lines if "address=" in line)
        return line.partition("address=")[2].split()[0]


@contextmanager
def running(state: Path, *words: str, env: dict[str, str]) -> Iterator[Process]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "REAPER_"))}
    started = subprocess.Popen(
        [sys.executable, "-m", "reaper.cli.main", "run", "--state", str(state), "--listen", "127.0.0.1:0", *words],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=plain | env,
    )  # fmt: skip
    process = Process(started)
    try:
        yield process
    finally:
        started.kill()
        started.wait()
        assert started.stderr is not None
        started.stderr.close()


def test_the_daemon_announces_itself_serves_its_door_keeps_marks_and_ends_on_a_signal(room: Room, moto: MotoEc2) -> None:
    room.configure(at(moto))
    resource = make.resource("i-0gone", ACCOUNT, "us-east-1")
    kept = make.mark(Stage.WARNED, resource=resource)
    with room.store() as store:
        store.save_marks((kept,), (), ())
    env = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with running(room.state, "--config", str(room.folder / "reaper.toml"), env=env) as reaper:
        started = reaper.line("reaper started")
        reaper.line("listening")
        assert "mode=observe" in started
        assert "ceiling=observe" in started
        assert "exploration (enforce, stop)" in started
        assert str(room.state) in started
        assert reaper.get("/healthz")[0] == 200
        reaper.eventually("/readyz", lambda status, _: status == 200)
        assert 'reaper_machines{state="no agent",verdict="keep"} 2.0' in reaper.get("/metrics")[1]
        # it began with the marks of the process before it: that machine is gone, and that is told
        reaper.line("mark cleared")
        reaper.started.send_signal(signal.SIGHUP)
        reaper.eventually("/metrics", lambda _, text: "reaper_cycle_seconds_count 2.0" in text)
        reaper.started.send_signal(signal.SIGTERM)

        assert reaper.started.wait(SOON_S) == 0
    store = open_state(room.state)
    try:
        assert store.held_lease() is None
    finally:
        store.close()
    assert moto.mutations() == []


def test_without_configuration_and_credentials_it_says_what_is_missing_and_keeps_trying(tmp_path: Path) -> None:
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path), "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    with running(tmp_path / "state", env=nowhere) as reaper:
        reaper.line("no configuration found")
        reaper.line("listening")
        missing = reaper.line("not readable; tried again each cycle")
        reaper.eventually("/readyz", lambda status, _: status == 200)
        assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in missing
        reaper.started.send_signal(signal.SIGHUP)
        reaper.eventually("/metrics", lambda _, text: "reaper_cycle_seconds_count 2.0" in text)
        reaper.started.send_signal(signal.SIGINT)

        assert reaper.started.wait(SOON_S) == 0


def test_a_cycle_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    script = (
        "import os, signal, time\nfrom reaper.cli import run\nrun.END_WITHIN_S = 0.1\n"
        "with run._ended_by_signals() as ending:\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=SOON_S)

    assert done.returncode == 1
    assert "the cycle did not end in time" in done.stderr


def test_an_address_in_use_is_a_failure_in_one_line(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "reaper.cli.main", "run", "--state", str(tmp_path / "s"), "--listen", f"127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SOON_S)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"reaper run: the report door cannot listen on 127.0.0.1:{port}")
