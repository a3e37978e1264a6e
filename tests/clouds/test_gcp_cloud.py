"""The Google adapter: Google's own client over HTTP, against a server that is held to Google's discovery document."""

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reaper.clouds.gcp import pages
from reaper.clouds.gcp.clients import Clients, default_credentials
from reaper.clouds.gcp.pace import Pace
from reaper.demo.compute_server import ComputeServer
from reaper.errors import (
    AnswerLost,
    CloudError,
    Denied,
    NoCapacity,
    NotFound,
    Protected,
    QuotaReached,
    Throttled,
    Unreachable,
    Unsupported,
    WrongState,
)
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.policy import environment_of, owner_of
from reaper.model.resource import Place, ResourceId
from reaper.ports import Listed
from tests.clouds.gce import FAST, adapter, gid
from tests.fakes.clock import ManualClock
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

LIST, GET, STOP, START = (f"compute.instances.{word}" for word in ("aggregatedList", "get", "stop", "start"))
OPERATION, TYPE, POLICIES = "compute.zoneOperations.get", "compute.machineTypes.get", "compute.resourcePolicies.aggregatedList"
NEVER = float("inf")


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def launch(server: ComputeServer, name: str = "m", zone: str = ZONE, project: str = PROJECT, type: str = "g2-standard-8", **more: Any) -> ResourceId:
    return gid(server.world.launch(name, project, zone, type, **more)["id"], zone, project)


def by_zone(listed: tuple[Listed, ...]) -> dict[str, Listed]:
    return {one.place.name: one for one in listed}


def machines(listed: tuple[Listed, ...]) -> dict[ResourceId, Instance]:
    return {instance.id: instance for one in listed for instance in one.instances}


# --- listing ----------------------------------------------------------------------------------------------------------


def test_importing_the_adapter_and_a_configuration_loads_no_sdk() -> None:
    code = """
import sys
import reaper.clouds.gcp, reaper.wiring, reaper.cli.main
from reaper.clock import SystemClock
from reaper.model.policy import GcpCloud
reaper.clouds.gcp.GcpCloud(GcpCloud(projects=("p",)), clock=SystemClock())
print([name for name in sys.modules if name == "google" or name.startswith(("google.", "requests"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_all_pages_are_listed(server: ComputeServer) -> None:
    expected = {launch(server, f"m{number}", (ZONE, OTHER_ZONE)[number % 2]) for number in range(7)}

    assert machines(adapter(server, page_size=2).list()).keys() == expected
    assert server.methods().count(LIST) == 4


def test_the_five_hundred_and_first_machine_is_listed(server: ComputeServer) -> None:
    expected = {launch(server, f"m{number}") for number in range(501)}
    listed = adapter(server).list()

    assert machines(listed).keys() == expected
    assert by_zone(listed)[OTHER_ZONE].failed is None


def test_an_empty_zone_is_a_whole_answer(server: ComputeServer) -> None:
    assert adapter(server).list() == (Listed(Place("gcp", PROJECT, OTHER_ZONE)), Listed(Place("gcp", PROJECT, ZONE)))


@pytest.mark.parametrize("how", ["unreachable", "warning"])
def test_a_zone_that_google_does_not_reach_is_not_known_here_and_hides_no_other(server: ComputeServer, how: str) -> None:
    kept = launch(server, "kept")
    launch(server, "unseen", OTHER_ZONE)
    server.world.lost[OTHER_ZONE] = how

    listed = by_zone(adapter(server).list())

    assert [i.id for i in listed[ZONE].instances] == [kept]
    assert listed[OTHER_ZONE].instances == ()
    assert f"gcp:{PROJECT}:{OTHER_ZONE}: Google" in (listed[OTHER_ZONE].failed or "")


def test_a_zone_of_which_google_does_not_speak_any_more_is_not_known(server: ComputeServer) -> None:
    launch(server, "unseen", OTHER_ZONE)
    cloud = adapter(server)
    cloud.list()
    server.world.lost[OTHER_ZONE] = "silent"

    listed = by_zone(cloud.list())

    assert "no page of the listing speaks of it" in (listed[OTHER_ZONE].failed or "")
    assert listed[ZONE].failed is None


def test_a_page_that_fails_makes_the_whole_project_unknown(server: ComputeServer) -> None:
    for number in range(4):
        launch(server, f"m{number}", (ZONE, OTHER_ZONE)[number % 2])
    cloud = adapter(server, page_size=2)
    cloud.list()
    server.fail(LIST, 403, "forbidden", skip=1)

    listed = cloud.list()

    assert {one.place.name for one in listed} == {ZONE, OTHER_ZONE}
    assert all(one.instances == () and "forbidden" in (one.failed or "") for one in listed)


def test_a_project_that_may_not_be_read_hides_no_other_and_says_so(server: ComputeServer) -> None:
    server.world.zones["ml-eval"] = (ZONE,)
    server.world.denied.add("ml-eval")
    kept = launch(server)

    listed = adapter(server, PROJECT, "ml-eval").list()

    assert machines(listed).keys() == {kept}
    (failed,) = [one for one in listed if one.failed is not None]
    assert failed.place == Place("gcp", "ml-eval", "?")
    assert "deploy/iam/gcp" in (failed.failed or "")


def test_a_known_project_that_fails_names_each_of_its_zones(server: ComputeServer) -> None:
    launch(server)
    cloud = adapter(server)
    cloud.list()
    server.world.denied.add(PROJECT)

    listed = cloud.list()

    assert {one.place.name for one in listed if one.failed} == {ZONE, OTHER_ZONE}


def test_a_project_that_hangs_is_not_waited_for_and_not_asked_twice(server: ComputeServer) -> None:
    server.world.zones["slow"] = (ZONE,)
    kept = launch(server)
    server.fail(LIST, 200, project="slow", delay_s=30)
    cloud = adapter(server, PROJECT, "slow", list_within=0.3, bounds=replace(FAST, read_s=20))

    first, second = cloud.list(), cloud.list()

    for listed in (first, second):
        assert machines(listed).keys() == {kept}
        assert [one.failed for one in listed if one.place.account == "slow"] != [None]
    assert [call.project for call in server.calls if call.method == LIST].count("slow") == 1


def test_only_the_zones_that_are_named_are_looked_at(server: ComputeServer) -> None:
    seen, unseen = launch(server, "seen"), launch(server, "unseen", OTHER_ZONE)
    cloud = adapter(server, settings={"zones": (ZONE, "us-central1-f")})

    listed = by_zone(cloud.list())

    assert set(listed) == {ZONE, "us-central1-f"}
    assert [i.id for i in listed[ZONE].instances] == [seen]
    assert "no page of the listing speaks of it" in (listed["us-central1-f"].failed or "")
    with pytest.raises(NotFound, match=r"clouds\.gcp\.zones"):
        cloud.get(unseen)


def test_throttled_and_broken_reads_are_tried_again(server: ComputeServer) -> None:
    kept = launch(server)
    server.fail(LIST, 403, "rateLimitExceeded")
    server.fail(LIST, 503, "backendError")
    server.fail(LIST, None)
    server.fail(LIST, 429, "rateLimitExceeded")

    assert machines(adapter(server, bounds=replace(FAST, reads_s=30)).list()).keys() == {kept}


def test_a_read_that_stays_throttled_is_not_known_and_not_empty(server: ComputeServer) -> None:
    launch(server)
    cloud = adapter(server)
    cloud.list()
    server.fail(LIST, 403, "rateLimitExceeded", times=NEVER)

    listed = cloud.list()

    assert all("rateLimitExceeded" in (one.failed or "") for one in listed)


def test_a_machine_without_a_number_fails_its_zone_alone(server: ComputeServer) -> None:
    kept = launch(server, "kept")
    launch(server, "nameless", OTHER_ZONE)
    server.world.machine(next(k[2] for k, b in server.world.instances.items() if b["name"] == "nameless"))["id"] = "0"

    listed = by_zone(adapter(server).list())

    assert [i.id for i in listed[ZONE].instances] == [kept]
    assert "not understood" in (listed[OTHER_ZONE].failed or "")


def test_a_project_of_a_domain_keeps_its_colon(server: ComputeServer) -> None:
    resource = launch(server, project="example.com:research")
    cloud = adapter(server, "example.com:research")

    assert machines(cloud.list()).keys() == {resource}
    assert cloud.get(ResourceId.parse(str(resource))).id == resource
    cloud.stop(resource)
    assert server.world.machine(resource.native)["status"] == "TERMINATED"


def test_without_the_library_it_says_what_to_install(server: ComputeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ImportError("No module named 'google.cloud'")

    monkeypatch.setattr(Clients, "load", staticmethod(missing))

    with pytest.raises(CloudError, match=r"pip install 'idle-reaper\[gcp\]'"):
        adapter(server).list()


@pytest.mark.parametrize("token", ["again", None], ids=["a_page_that_comes_again", "pages_without_end"])
@pytest.mark.parametrize("what", [LIST, POLICIES])
def test_a_listing_that_does_not_end_is_given_up(server: ComputeServer, monkeypatch: pytest.MonkeyPatch, token: str | None, what: str) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 20)
    nights = server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC"})
    resource = launch(server, resourcePolicies=[nights])
    turns, whole = iter(range(10**9)), server.world.aggregated

    def never_ending(kind: str, project: str, size: int, asked: str | None) -> Any:
        answer = whole(kind, project, size, None)
        return answer if kind not in what else {**answer, "nextPageToken": token or str(next(turns))}

    server.world.aggregated = never_ending  # type: ignore[method-assign]

    listed = adapter(server).list()

    if what == LIST:
        assert all(one.instances == () and "does not end" in (one.failed or "") for one in listed)
    else:
        assert "could not be read" in (machines(listed)[resource].managed_by or "")
    assert server.methods().count(what) <= 25


# --- what is the same as before ---------------------------------------------------------------------------------------


def test_a_machine_of_which_google_says_the_same_is_the_same_and_a_change_is_seen_at_once(server: ComputeServer) -> None:
    same, changed = launch(server, "same"), launch(server, "changed")
    cloud = adapter(server)
    cloud.list()
    before = machines(cloud.list())
    server.world.machine(changed.native)["status"] = "TERMINATED"
    server.world.machine(changed.native)["labels"] = {"team": "ml"}
    after = machines(cloud.list())

    assert after[same] is before[same]
    assert (after[changed].state, after[changed].tags) == (InstanceState.STOPPED, {"team": "ml"})
    assert after[same] == cloud.get(same)


def test_what_became_known_meanwhile_is_told_of_machines_that_did_not_change(server: ComputeServer) -> None:
    resource = launch(server)
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, clock=clock)
    server.fail(TYPE, 403, "forbidden")
    before = [machines(cloud.list())[resource].gpus for _ in range(2)]
    clock.advance(timedelta(minutes=11))

    assert (before, machines(cloud.list())[resource].gpus) == ([None, None], 1)


def test_a_policy_that_became_a_schedule_is_told_of_a_machine_that_did_not_change(server: ComputeServer) -> None:
    link = server.world.add_policy("nights", PROJECT, "us-central1", groupPlacementPolicy={"collocation": "COLLOCATED"})
    resource = launch(server, resourcePolicies=[link])
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, clock=clock)
    before = machines(cloud.list())[resource].managed_by
    server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC"})
    clock.advance(timedelta(minutes=11))

    assert before is None
    assert "schedule nights" in (machines(cloud.list())[resource].managed_by or "")


def test_a_listing_that_broke_off_hides_no_machine_in_the_next(server: ComputeServer) -> None:
    expected = {launch(server, f"m{number}") for number in range(4)}
    cloud = adapter(server, page_size=2)
    cloud.list()
    server.fail(LIST, 403, "forbidden", skip=1)

    assert machines(cloud.list()) == {}
    assert machines(cloud.list()).keys() == expected


# --- what machines refer to -------------------------------------------------------------------------------------------


def test_each_type_is_asked_for_once_whatever_the_number_of_machines(server: ComputeServer) -> None:
    for number in range(20):
        launch(server, f"m{number}", type=("g2-standard-24", "e2-standard-8")[number % 2])
    cloud = adapter(server)

    for _ in range(3):
        found = machines(cloud.list()).values()

    assert {(i.type, i.gpus, i.gpu_model) for i in found} == {("g2-standard-24", 2, "L4"), ("e2-standard-8", 0, None)}
    assert (server.methods().count(TYPE), server.methods().count(GET)) == (2, 0)
    assert server.methods().count(LIST) == 3


def test_a_type_that_cannot_be_read_is_not_known_and_asked_for_again_later(server: ComputeServer) -> None:
    resource = launch(server)
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, clock=clock)
    server.fail(TYPE, 403, "forbidden")

    before = [machines(cloud.list())[resource].gpus for _ in range(2)]
    clock.advance(timedelta(minutes=11))
    after = machines(cloud.list())[resource].gpus

    assert (before, after) == ([None, None], 1)
    assert server.methods().count(TYPE) == 2


def test_an_instance_schedule_of_googles_own_is_told(server: ComputeServer) -> None:
    nights = server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC", "vmStopSchedule": {"schedule": "0 20 * * *"}})
    close = server.world.add_policy("close", PROJECT, "us-central1", groupPlacementPolicy={"collocation": "COLLOCATED"})
    scheduled, placed = launch(server, "a", resourcePolicies=[nights]), launch(server, "b", resourcePolicies=[close])
    cloud = adapter(server)

    for _ in range(3):
        found = machines(cloud.list())

    assert "Google's instance schedule nights" in (found[scheduled].managed_by or "")
    assert (found[placed].managed_by, found[placed].placement_group) == (None, "close")
    assert cloud.get(scheduled) == found[scheduled]
    assert server.methods().count(POLICIES) == 1


def test_a_policy_that_cannot_be_read_holds_its_machines_and_no_other(server: ComputeServer) -> None:
    nights = server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC"})
    scheduled, plain = launch(server, "a", resourcePolicies=[nights]), launch(server, "b")
    server.fail(POLICIES, 403, "forbidden", times=NEVER)

    found = machines(adapter(server).list())

    assert "could not be read" in (found[scheduled].managed_by or "")
    assert found[plain].managed_by is None


# --- one machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "resource",
    [
        ResourceId("aws", PROJECT, ZONE, "instance", "7"), ResourceId("gcp", PROJECT, ZONE, "disk", "7"), ResourceId("gcp", PROJECT, "us-central1", "instance", "7"),
        ResourceId("gcp", "somebody-elses", ZONE, "instance", "7"), ResourceId("gcp", PROJECT, ZONE, "instance", "trainer"),
    ],
    ids=["another_cloud", "a_disk", "a_region", "another_project", "a_name"],
)  # fmt: skip
def test_an_id_that_is_not_ours_is_not_asked_for(server: ComputeServer, resource: ResourceId) -> None:
    cloud = adapter(server)
    for call in (cloud.get, cloud.stop, cloud.start):
        with pytest.raises(NotFound, match=str(resource)):
            call(resource)

    assert server.calls == []


def test_a_new_machine_under_an_old_name_is_another_machine(server: ComputeServer) -> None:
    old = launch(server, "trainer")
    server.world.remove(old.native)
    new = launch(server, "trainer")
    cloud = adapter(server)

    with pytest.raises(NotFound):
        cloud.stop(old)

    assert cloud.get(new).state is InstanceState.RUNNING


def test_protection_from_deletion_protects_and_nothing_is_sent(server: ComputeServer) -> None:
    resource = launch(server, deletionProtection=True)
    cloud = adapter(server)

    assert cloud.protections(resource).stop_protected is True
    with pytest.raises(Protected, match="deletion protection is on"):
        cloud.stop(resource)
    assert server.mutations() == []


def test_protection_from_deletion_may_be_said_to_mean_nothing(server: ComputeServer) -> None:
    resource = launch(server, deletionProtection=True)
    cloud = adapter(server, settings={"deletion_protection": "ignore"})

    assert cloud.protections(resource).stop_protected is False
    cloud.stop(resource)

    assert server.world.machine(resource.native)["status"] == "TERMINATED"


def test_whose_a_project_is_is_told_of_machines_that_do_not_say(server: ComputeServer) -> None:
    said, silent = launch(server, "said", labels={"owner": "ada"}), launch(server, "silent")
    cloud = adapter(server, settings={"given": {PROJECT: {"owner": "grace", "environment": "dev"}, "other": {"owner": "nobody"}}})
    cloud.list()

    for machine, owner in ((cloud.get(said), "ada"), (machines(cloud.list())[silent], "grace")):
        assert owner_of(machine, ("tag:owner",)) == owner
        assert environment_of(machine, ("tag:env",)) == "dev"


def test_the_clocks_are_compared_by_the_newest_answer(server: ComputeServer) -> None:
    cloud = adapter(server)
    server.ahead = timedelta(minutes=5)
    cloud.list()
    skew = cloud.skew(datetime.now(UTC))

    assert skew is not None
    assert timedelta(minutes=-6) < skew < timedelta(minutes=-4)


# --- stop and start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("choice", "sent"), [("preserve", "false"), ("discard", "true")])
def test_what_becomes_of_local_ssds_is_always_said(server: ComputeServer, choice: str, sent: str) -> None:
    resource = launch(server, type="a2-ultragpu-1g")

    adapter(server, settings={"local_ssd": choice}).stop(resource)

    assert [call.query.get("discardLocalSsd") for call in server.calls if call.method == STOP] == [sent]
    assert server.world.machine(resource.native)["status"] == "TERMINATED"


def test_a_stop_relies_on_a_read_of_a_moment_ago_and_on_none_that_is_older(server: ComputeServer) -> None:
    fresh, stale = launch(server, "a"), launch(server, "b")
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, clock=clock, bounds=replace(FAST, stop_s=0))
    for resource in (fresh, stale):
        cloud.get(resource)
    server.world.machine(stale.native)["deletionProtection"] = True

    cloud.stop(fresh)
    reads = server.methods().count(GET)
    clock.advance(timedelta(seconds=11))
    with pytest.raises(Protected):
        cloud.stop(stale)

    assert (reads, server.methods().count(GET)) == (2, 3)
    assert server.mutations() == [STOP]


def test_a_machine_that_cannot_be_read_just_before_is_not_stopped_and_not_waited_for(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(GET, 503, times=NEVER)

    with pytest.raises(Unreachable):
        adapter(server).stop(resource)

    assert server.methods() == [GET]


@pytest.mark.parametrize(("choice", "type", "saves"), [("preserve", "a2-ultragpu-1g", True), ("discard", "a2-ultragpu-1g", None), ("preserve", "g2-standard-8", None)])
def test_a_stop_that_saves_local_ssds_takes_its_time(server: ComputeServer, choice: str, type: str, saves: bool | None) -> None:
    resource = launch(server, type=type)
    cloud = adapter(server, settings={"local_ssd": choice})

    assert machines(cloud.list())[resource].stop_saves_local is saves
    assert cloud.get(resource).stop_saves_local is saves


def test_a_machine_without_local_ssds_is_stopped_without_a_word_of_them(server: ComputeServer) -> None:
    resource = launch(server)

    adapter(server).stop(resource)

    (call,) = [call for call in server.calls if call.method == STOP]
    assert set(call.query) == {"requestId"}
    assert uuid.UUID(call.query["requestId"]).int
    assert call.parts["instance"] == resource.native


def test_a_stop_that_takes_long_is_accepted_and_read_later(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_s = NEVER
    cloud = adapter(server)

    cloud.stop(resource)
    meanwhile = cloud.get(resource)
    server.world.settle(everything=True)
    after = cloud.get(resource)

    assert (meanwhile.state, meanwhile.changed_at) == (InstanceState.STOPPING, None)
    assert after.state is InstanceState.STOPPED
    assert after.changed_at is not None
    assert server.mutations() == [STOP]


def test_a_spot_machine_is_stopped(server: ComputeServer) -> None:
    resource = launch(server, scheduling={"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"})
    cloud = adapter(server)

    cloud.stop(resource)

    assert cloud.get(resource).state is InstanceState.STOPPED


FAILURES: list[tuple[dict[str, Any], type[CloudError], str]] = [
    ({"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "x", "http": 503}, NoCapacity, f"zone {ZONE}"),
    ({"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "message": "x"}, NoCapacity, f"zone {ZONE}"),
    ({"code": "QUOTA_EXCEEDED", "message": "GPUS_ALL_REGIONS"}, QuotaReached, "quota"),
    ({"code": "QUOTA_EXCEEDED", "message": "x", "errorDetails": [{"errorInfo": {"reason": "resource_availability"}}]}, NoCapacity, "another zone"),
    ({"code": "SOMETHING_NEW", "message": "x", "errorDetails": [{"errorInfo": {"reason": "stockout"}}]}, NoCapacity, "another zone"),
    ({"code": "UNSUPPORTED_OPERATION", "message": "x"}, Unsupported, "UNSUPPORTED_OPERATION"),
    ({"code": "RESOURCE_NOT_READY", "message": "x"}, WrongState, "RESOURCE_NOT_READY"),
    ({"code": "PERMISSIONS_ERROR", "message": "x"}, Denied, "PERMISSIONS_ERROR"),
    ({"code": "INTERNAL_ERROR", "message": "x"}, CloudError, "INTERNAL_ERROR"),
    ({"http": 403}, Denied, "403"),
]


@pytest.mark.parametrize(("ended", "kind", "word"), FAILURES, ids=[f"{row[0].get('code', row[0].get('http'))}-{n}" for n, row in enumerate(FAILURES)])
def test_an_operation_that_is_done_and_failed_is_a_failure(server: ComputeServer, ended: dict[str, Any], kind: type[CloudError], word: str) -> None:
    resource = launch(server, status="TERMINATED", lastStopTimestamp="2026-11-30T10:00:00+00:00")
    server.world.op_errors["start"] = [ended]
    server.world.op_s = 0.05

    with pytest.raises(kind, match=word) as caught:
        adapter(server, bounds=replace(FAST, start_s=30)).start(resource)

    assert type(caught.value) is kind
    assert str(resource) in str(caught.value)
    assert server.methods().count(START) == 1


def test_a_stop_that_failed_is_one_even_though_it_was_accepted(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_errors["stop"] = [{"code": "INTERNAL_ERROR", "message": "x"}]
    cloud = adapter(server)

    with pytest.raises(CloudError, match="INTERNAL_ERROR"):
        cloud.stop(resource)

    assert cloud.get(resource).state is InstanceState.RUNNING


def test_the_machine_itself_is_the_proof_where_an_operation_failed(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_errors["stop"] = [{"code": "INTERNAL_ERROR", "message": "x"}]
    whole = server.world._look

    def stopped_all_the_same(operation: Any, now: bool = False) -> Any:
        body = whole(operation, now)
        server.world.machine(resource.native)["status"] = "TERMINATED"
        return body

    server.world._look = stopped_all_the_same  # type: ignore[method-assign]

    adapter(server).stop(resource)


def test_a_failed_operation_whose_machine_cannot_be_read_is_not_known(server: ComputeServer) -> None:
    resource = launch(server, status="TERMINATED")
    server.world.op_errors["start"] = [{"code": "INTERNAL_ERROR", "message": "x"}]
    server.fail(GET, 403, "forbidden", times=NEVER, skip=1)

    with pytest.raises(AnswerLost, match="INTERNAL_ERROR"):
        adapter(server).start(resource)


def test_a_stock_out_that_comes_late_is_told_with_the_machine(server: ComputeServer) -> None:
    resource = launch(server, status="TERMINATED")
    server.world.op_errors["start"] = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "message": "no L4 left", "http": 503}]
    server.world.op_s = NEVER
    cloud = adapter(server)

    cloud.start(resource)
    server.world.settle(everything=True)
    told = [cloud.get(resource) for _ in range(2)]

    for machine in told:
        assert machine.state is InstanceState.STOPPED
        assert f"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS (zone {ZONE}, g2-standard-8): no L4 left" in (machine.state_reason or "")


def test_an_operation_that_google_has_forgotten_says_nothing_about_the_machine(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_s = NEVER
    cloud = adapter(server)
    cloud.stop(resource)
    server.world.settle(everything=True)
    server.world.operations.clear()
    asked = server.methods().count(OPERATION)

    told = [cloud.get(resource) for _ in range(3)]

    assert [(machine.state, machine.state_reason) for machine in told] == [(InstanceState.STOPPED, None)] * 3
    assert server.methods().count(OPERATION) == asked + 1


def test_an_operation_that_ended_with_warnings_is_none_that_failed(server: ComputeServer) -> None:
    resource = launch(server)
    whole = server.world._begin

    def warned(*arguments: Any) -> Any:
        body = whole(*arguments)
        body["warnings"] = [{"code": "NEXT_HOP_NOT_RUNNING", "message": "x"}]
        return body

    server.world._begin = warned  # type: ignore[method-assign]
    cloud = adapter(server)

    cloud.stop(resource)

    assert cloud.get(resource).state is InstanceState.STOPPED


def test_an_operation_that_cannot_be_read_is_accepted_and_the_machine_tells(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_s = NEVER
    server.fail(OPERATION, 403, "forbidden", times=NEVER)
    cloud = adapter(server)

    cloud.stop(resource)

    assert cloud.get(resource).state is InstanceState.STOPPING
    assert cloud.get(resource).state_reason is None


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "rateLimitExceeded", Throttled), (429, "rateLimitExceeded", Throttled), (403, "forbidden", Denied), (401, "authError", Denied),
        (403, "accessNotConfigured", Denied), (403, "quotaExceeded", QuotaReached), (412, "conditionNotMet", WrongState), (400, "resourceNotReady", WrongState),
        (400, "UNSUPPORTED_OPERATION", Unsupported), (409, "conflict", WrongState), (400, "badRequest", CloudError), (500, "backendError", AnswerLost),
        (503, "backendError", AnswerLost), (502, "", AnswerLost), (503, "ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity), (404, "notFound", NotFound),
    ],
)  # fmt: skip
def test_a_refused_verb_is_the_right_kind_of_error_and_sent_once(server: ComputeServer, status: int, reason: str, kind: type[CloudError]) -> None:
    resource = launch(server)
    server.fail(STOP, status, reason, times=NEVER)

    with pytest.raises(CloudError) as caught:
        adapter(server).stop(resource)

    assert type(caught.value) is kind
    assert str(resource) in str(caught.value)
    assert server.methods().count(STOP) == 1
    assert server.world.machine(resource.native)["status"] == "RUNNING"


def test_an_answer_that_does_not_come_in_time_is_lost(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(STOP, 200, delay_s=30)

    with pytest.raises(AnswerLost, match=str(resource)):
        adapter(server, bounds=replace(FAST, read_s=0.2)).stop(resource)

    assert server.methods().count(STOP) == 1


def test_a_verb_that_never_left_us_is_no_lost_answer(server: ComputeServer) -> None:
    resource = launch(server)
    cloud = adapter(server)
    server.close()

    with pytest.raises(Unreachable, match="no connection to Google"):
        cloud.start(resource)


def test_an_answer_about_another_machine_is_a_lost_one(server: ComputeServer) -> None:
    resource, other = launch(server, "m"), launch(server, "other")
    original = server.world.act

    def of_the_other(verb: str, project: str, zone: str, name: str, query: Any) -> Any:
        return original(verb, project, zone, other.native, query)

    server.world.act = of_the_other  # type: ignore[method-assign]

    with pytest.raises(AnswerLost, match="does not name it"):
        adapter(server).stop(resource)


# --- credentials and pace ---------------------------------------------------------------------------------------------


class Tokens:
    """Makes credentials whose token names whom they are for, and counts what was asked for."""

    def __init__(self, *fail: Exception) -> None:
        self.asked: list[str | None] = []
        self._fail = list(fail)

    def __call__(self, principal: str | None) -> Any:
        from google.oauth2.credentials import Credentials

        self.asked.append(principal)
        if self._fail:
            raise self._fail.pop(0)
        return Credentials(token=f"of-{principal}")  # type: ignore[no-untyped-call]


def test_a_service_account_is_impersonated_for_each_project_where_its_name_says_so(server: ComputeServer) -> None:
    server.world.zones["ml-eval"] = (ZONE,)
    tokens = Tokens()
    cloud = adapter(server, PROJECT, "ml-eval", settings={"service_account": "reaper@{project}.iam.gserviceaccount.com"}, credentials=tokens)

    for _ in range(2):
        cloud.list()

    assert sorted(map(str, tokens.asked)) == ["reaper@ml-eval.iam.gserviceaccount.com", f"reaper@{PROJECT}.iam.gserviceaccount.com"]
    sent = {(call.project, call.headers["authorization"]) for call in server.calls}
    assert sent == {(project, f"Bearer of-reaper@{project}.iam.gserviceaccount.com") for project in (PROJECT, "ml-eval")}


def test_credentials_that_are_not_there_are_denied_and_looked_for_again(server: ComputeServer) -> None:
    from google.auth.exceptions import DefaultCredentialsError

    resource = launch(server)
    tokens = Tokens(DefaultCredentialsError("none"))
    cloud = adapter(server, credentials=tokens)

    with pytest.raises(Denied, match="no usable Google credentials"):
        cloud.get(resource)

    assert cloud.get(resource).id == resource
    assert tokens.asked == [None, None]


@pytest.mark.parametrize("principal", [None, "reaper@ml-research.iam.gserviceaccount.com"])
def test_the_credentials_at_hand_are_found_the_way_every_google_tool_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, principal: str | None) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "quota_project_id": "q"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)

    found = default_credentials(principal)

    assert getattr(found, "service_account_email", None) == principal
    assert getattr(found, "_source_credentials", found).client_id == "c"


def test_a_token_that_cannot_be_renewed_makes_credentials_be_looked_for_again(server: ComputeServer) -> None:
    from google.auth.exceptions import RefreshError
    from google.oauth2.credentials import Credentials

    class Stale(Credentials):  # type: ignore[misc]
        @property
        def valid(self) -> bool:
            return False

        def before_request(self, *arguments: object) -> None:
            raise RefreshError("revoked")

    resource = launch(server)
    made: list[Callable[[], Any]] = [lambda: Stale(token="x"), lambda: Credentials(token="y")]  # type: ignore[no-untyped-call]
    cloud = adapter(server, credentials=lambda principal: made.pop(0)())

    with pytest.raises(Denied, match="revoked"):
        cloud.stop(resource)
    cloud.stop(resource)

    assert server.methods().count(STOP) == 1


def test_a_project_is_asked_at_a_pace_that_leaves_room_for_others() -> None:
    clock = ManualClock(datetime.now(UTC))
    waited: list[float] = []
    pace = Pace(clock, per_s=5, burst=3, wait=waited.append)

    for _ in range(5):
        pace.take("a")
    pace.take("b")
    clock.advance(timedelta(seconds=10))
    pace.take("a")

    assert waited == pytest.approx([0.2, 0.4])


def test_every_request_is_paced_retries_and_pages_too(server: ComputeServer) -> None:
    for number in range(4):
        launch(server, f"m{number}", type="custom-4-4096")
    server.fail(LIST, 503)
    taken: list[str] = []
    pace = Pace(ManualClock(datetime.now(UTC)))
    pace.take = taken.append  # type: ignore[method-assign]

    adapter(server, page_size=2, pace=pace, bounds=replace(FAST, reads_s=30)).list()

    assert taken == [PROJECT] * 3 == [call.project for call in server.calls]


def test_two_threads_may_use_it_at_once(server: ComputeServer) -> None:
    resources = [launch(server, f"m{number}") for number in range(8)]
    cloud = adapter(server)
    read: list[ResourceId] = []
    threads = [threading.Thread(target=lambda r=r: read.append(cloud.get(r).id)) for r in resources]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(read) == sorted(resources)
