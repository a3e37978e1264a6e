"""
The whole story on Google Cloud, with real processes: agents that ask a metadata server who they are, the daemon with
Google's own client, a Compute API over HTTP that is held to Google's discovery document.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reaper.model.resource import ResourceId
from tests.fakes import nvml
from tests.fakes.gce import OTHER_ZONE, PROJECT, compute_server
from tests.story.google_stage import GoogleStage
from tests.story.test_whole_story import Webhook

pytestmark = pytest.mark.story

MIG = "projects/123456789012/zones/us-central1-a/instanceGroupManagers/train-a"


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    yield hook
    hook.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[GoogleStage]:
    if not Path("/proc/self/io").exists():
        pytest.skip("needs Linux's /proc, which this machine has not")
    library = nvml.build(tmp_path_factory.mktemp("nvml"))
    with compute_server() as server:
        made = GoogleStage.over(server, tmp_path_factory.mktemp("google"), library, webhook.url)
        try:
            _people(made)
            yield made
        finally:
            made.close()


def _people(stage: GoogleStage) -> None:
    nights = stage.server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC"})
    stage.launch("idle")
    stage.launch("busy")
    stage.launch("protected")
    stage.launch("undeletable", deletionProtection=True)
    stage.launch("member", metadata={"items": [{"key": "created-by", "value": MIG}]})
    stage.launch("scheduled", resourcePolicies=[nights])
    stage.launch("gang-busy", labels={"job-group": "run-7"})
    stage.launch("gang-idle", labels={"job-group": "run-7"})
    stage.server.world.lost[OTHER_ZONE] = "unreachable"
    stage.configure(stage.hosts["protected"])
    for name in ("busy", "gang-busy"):
        stage.hosts[name].load("gpu 0 util 93")
    stage.start_daemon()
    for host in stage.hosts.values():
        stage.start_agent(host)


def test_an_idle_machine_of_googles_is_warned_then_stopped_and_its_siblings_stay_up(stage: GoogleStage, webhook: Webhook) -> None:
    idle = stage.hosts["idle"]

    stage.wait("idle stopped", lambda: stage.state_of(idle) == "TERMINATED")
    stage.wait("its outcome is written", lambda: "outcome" in stage.kinds(idle))
    # whoever was to be stopped wrongly had the same terms, and as long again
    stage.wait("everybody has spoken", lambda: all(stage.store.voice(ResourceId.parse(host.id)) is not None for host in stage.hosts.values()))
    said = len(stage.audit())
    cycles = stage.store.fact("last_cycle_at")
    stage.wait("some more cycles", lambda: stage.store.fact("last_cycle_at") != cycles and len(stage.audit()) >= said)

    up = {name: stage.state_of(host) for name, host in stage.hosts.items() if name != "idle"}
    assert up == dict.fromkeys(up, "RUNNING")
    assert [kind for kind in stage.kinds(idle) if kind not in ("paused", "resumed")][-6:] == ["nominated", "warned", "due", "intent", "accepted", "outcome"]
    assert [m["owner"] for m in webhook.told if m["event"] == "warned" and m["name"] == "idle"] == ["ada"]


WHY = [
    ("busy", "working"), ("protected", "long-run"), ("member", "managed instance group train-a"), ("scheduled", "Google's instance schedule nights"),
    ("gang-idle", "members may be missing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "word"), WHY, ids=[row[0] for row in WHY])
def test_why_tells_what_spared_each_sibling(stage: GoogleStage, name: str, word: str) -> None:
    told = stage.command("why", stage.hosts[name].native)

    assert word in " ".join(told.stdout.split()), told.stdout


def test_deletion_protection_is_read_before_anything_is_done(stage: GoogleStage) -> None:
    host = stage.hosts["undeletable"]

    def read() -> bool:
        return any(call.method == "compute.instances.get" and call.parts["instance"] == host.native for call in stage.server.calls)

    stage.wait("its protection was read", read)

    assert stage.state_of(host) == "RUNNING"
    assert "warned" not in stage.kinds(host)


def test_the_zone_that_google_does_not_reach_is_told_and_when_it_answers_again_the_job_is_known_whole(stage: GoogleStage) -> None:
    before = stage.json("inventory")["failed_places"]
    stage.server.world.lost.clear()
    stage.wait("the zone answers", lambda: not [place for place in stage.store.listings().values() if place.failed])
    told = stage.command("why", stage.hosts["gang-idle"].native)

    assert [place["place"] for place in before] == [f"gcp:{PROJECT}:{OTHER_ZONE}"]
    assert "gang-busy of the same job is working" in " ".join(told.stdout.split())


def test_undo_starts_it_again(stage: GoogleStage) -> None:
    idle = stage.hosts["idle"]
    entry = next(e for e in stage.json("audit", "--resource", idle.id)["entries"] if e["kind"] == "outcome")

    stage.command("undo", entry["attempt"], "--yes")

    stage.wait("idle runs again", lambda: stage.state_of(idle) == "RUNNING")


def test_nothing_but_one_stop_the_asked_start_and_our_labels_ever_reached_the_cloud(stage: GoogleStage) -> None:
    assert stage.stop_daemon(signal.SIGTERM) == 0
    verbs = [method for method in stage.server.mutations() if method != "compute.instances.setLabels"]  # the labels are our own
    assert verbs == ["compute.instances.stop", "compute.instances.start"]
