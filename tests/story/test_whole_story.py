"""
From a GPU sample to a safely stopped machine, with real processes throughout: agents over a compiled NVML library, the
daemon, an EC2 API over HTTP, a webhook that people read.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reaper.model.resource import ResourceId
from tests.fakes import nvml
from tests.fakes.moto_ec2 import strict_server
from tests.story.stage import Stage

pytestmark = pytest.mark.story

# Reads past the page cache, so that the kernel counts them as storage reads; slowly, so that nothing else looks busy.
SLOW_READER = """
import os, sys, time
path = sys.argv[1]
with open(path, "wb") as file:
    file.write(os.urandom(4 << 20)); file.flush(); os.fsync(file.fileno())
fd = os.open(path, os.O_RDONLY)
while True:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(fd, 65536, 0)
    time.sleep(0.05)
"""


class Webhook:
    """Collects what people are told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.told.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    yield hook
    hook.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[Stage]:
    if not Path("/proc/self/io").exists():
        pytest.skip("needs Linux's /proc, which this machine has not")
    folder = tmp_path_factory.mktemp("story")
    library = nvml.build(tmp_path_factory.mktemp("nvml"))
    with strict_server() as moto:
        made = Stage(folder, moto, library, webhook.url)
        reader = subprocess.Popen([sys.executable, "-c", SLOW_READER, str(folder / "dataset")])
        try:
            _people(made, reader.pid)
            yield made
        finally:
            reader.kill()
            reader.wait(timeout=20)
            made.close()


def _people(stage: Stage, reader: int) -> None:
    """Everybody's life before the curtain rises."""
    for name, gpus, tags in (
        ("idle", 1, {}), ("busy", 1, {}), ("starved", 1, {}), ("silent", 1, {}), ("protected", 1, {}), ("one-of-eight", 8, {}),
        ("gang-busy", 1, {"job-group": "run-7"}), ("gang-idle", 1, {"job-group": "run-7"}), ("killed", 1, {}), ("late-job", 1, {}),
        ("second", 1, {}), ("third", 1, {}),
    ):  # fmt: skip
        stage.launch(name, gpus, **tags)
    stage.launch("watched", phase="watched")
    stage.configure(stage.hosts["protected"])
    for name in ("busy", "gang-busy", "second", "third", "silent"):
        stage.hosts[name].load("gpu 0 util 93")
    stage.hosts["one-of-eight"].load("gpu * util 0", "gpu 5 util 71")
    stage.hosts["starved"].load("gpu 0 util 0", f"gpu 0 proc {reader} 9000", "gpu 0 mem 9000 16160")
    stage.start_daemon()
    for host in stage.hosts.values():
        stage.start_agent(host)


def test_idle_machine_is_warned_then_stopped_and_its_siblings_stay_up(stage: Stage, webhook: Webhook) -> None:
    hosts = stage.hosts
    stage.wait("silent spoke", lambda: _has_spoken(stage, "silent"))
    stage.kill_agent(hosts["silent"])

    stage.wait("killed was warned", lambda: "warned" in stage.kinds(hosts["killed"]))
    stage.kill_agent(hosts["killed"])
    stage.wait("late-job was due", lambda: "due" in stage.kinds(hosts["late-job"]))
    hosts["late-job"].load("gpu 0 util 95")

    stage.wait("idle stopped", lambda: stage.ec2_state(hosts["idle"]) == "stopped")
    stage.wait("its outcome is written", lambda: "outcome" in stage.kinds(hosts["idle"]))
    # As long again as it took: whoever was to be stopped wrongly would be by now.
    stage.wait("observed machine ran its course", lambda: "due" in stage.kinds(hosts["watched"]))
    stage.wait("the late job cleared its mark", lambda: "cleared" in stage.kinds(hosts["late-job"]))

    up = {name: stage.ec2_state(host) for name, host in hosts.items() if name != "idle"}
    assert up == dict.fromkeys(up, "running")
    kinds = stage.kinds(hosts["idle"])
    assert [kind for kind in kinds if kind not in ("paused", "resumed")][-6:] == ["nominated", "warned", "due", "intent", "accepted", "outcome"]
    warned = [m for m in webhook.told if m["event"] == "warned" and m["name"] == "idle"]
    assert warned
    assert warned[0]["owner"] == "ada"


def _has_spoken(stage: Stage, name: str) -> bool:
    return stage.store.voice(ResourceId.parse(stage.hosts[name].id)) is not None


WHY = [
    ("busy", "working"), ("starved", "waited for data"), ("silent", "silent"), ("protected", "long-run"), ("one-of-eight", "working"),
    ("gang-idle", "gang-busy of the same job is working"), ("watched", "observe"), ("killed", "silent agent"), ("late-job", "working"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "word"), WHY, ids=[row[0] for row in WHY])
def test_why_tells_what_spared_each_sibling(stage: Stage, name: str, word: str) -> None:
    told = stage.command("why", stage.hosts[name].native)

    assert word in " ".join(told.stdout.split()), told.stdout


def test_why_and_audit_tell_the_story_of_the_stopped_one(stage: Stage) -> None:
    idle = stage.hosts["idle"]

    why = " ".join(stage.command("why", idle.name).stdout.split())
    audit = stage.json("audit", "--resource", idle.id)["entries"]

    assert "undo" in why
    assert [entry["kind"] for entry in audit][-1] == "outcome"
    assert "every GPU at or below 5%" in next(e["because"] for e in audit if e["kind"] == "intent")


def test_restart_during_the_countdown_neither_forgets_nor_hurries(stage: Stage, webhook: Webhook) -> None:
    second = stage.hosts["second"]
    second.load("gpu 0 util 0")
    stage.wait("second was warned", lambda: "warned" in stage.kinds(second))

    assert stage.stop_daemon() == 0
    stage.start_daemon()
    stage.wait("second stopped", lambda: stage.ec2_state(second) == "stopped")

    story = stage.audit(second)
    last = {entry["kind"]: entry["at"] for entry in story}
    assert [m["event"] for m in webhook.told if m["name"] == "second"].count("warned") == 1
    assert last["intent"] - last["warned"] >= timedelta(seconds=5)


def test_longer_gap_of_the_daemon_warns_again(stage: Stage, webhook: Webhook) -> None:
    third = stage.hosts["third"]
    third.load("gpu 0 util 0")
    stage.wait("third was warned", lambda: "warned" in stage.kinds(third))

    assert stage.stop_daemon() == 0
    past = stage.store.fact("last_cycle_at")
    assert past is not None
    stage.store.set_facts({"last_cycle_at": (datetime.fromisoformat(past) - timedelta(minutes=11)).isoformat()})
    stage.start_daemon()
    stage.wait("third stopped", lambda: stage.ec2_state(third) == "stopped")

    assert [m["event"] for m in webhook.told if m["name"] == "third"].count("warned") == 2
    assert "discontinuity" in [entry["kind"] for entry in stage.audit()]


def test_undo_starts_the_machine_again(stage: Stage) -> None:
    idle = stage.hosts["idle"]
    entry = next(e for e in stage.json("audit", "--resource", idle.id)["entries"] if e["kind"] == "outcome")

    stage.command("undo", entry["attempt"], "--yes")

    stage.wait("idle runs again", lambda: stage.ec2_state(idle) == "running")


def test_nothing_but_stops_the_asked_start_and_our_tags_ever_reached_the_cloud(stage: Stage) -> None:
    assert set(stage.moto.mutations()) <= {"StopInstances", "StartInstances", "CreateTags", "DeleteTags"}  # the tags are our own
    assert stage.moto.mutations().count("StopInstances") == 3


def test_daemon_ends_cleanly_and_its_log_holds_no_token(stage: Stage) -> None:
    assert stage.stop_daemon(signal.SIGTERM) == 0
    log = (stage.folder / "daemon.log").read_text()

    assert stage.webhook not in log
    for host in stage.hosts.values():
        assert (host.folder / "token").read_text() not in log
