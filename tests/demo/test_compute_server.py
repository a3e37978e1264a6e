"""The fake Compute server, asked by Google's own client, with every word of both sides held to Google's discovery document."""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from reaper.demo.compute_server import ComputeServer
from reaper.demo.compute_world import Refusal
from tests.fakes.discovery import Breach
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server, google_client


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


@pytest.fixture
def instances(server: ComputeServer) -> Any:
    return google_client("Instances", server)


@pytest.fixture
def operations(server: ComputeServer) -> Any:
    return google_client("ZoneOperations", server)


def at(name: str, zone: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"project": PROJECT, "zone": zone, "instance": name, **more}


def status(instances: Any, name: str) -> str:
    return str(instances.get(request=at(name)).status)


def test_a_listing_pages_and_names_every_scope_on_every_page(server: ComputeServer, instances: Any) -> None:
    for number in range(5):
        server.world.launch(f"m{number}", PROJECT, (ZONE, OTHER_ZONE)[number % 2])

    pages = list(instances.aggregated_list(request={"project": PROJECT, "max_results": 2}).pages)

    assert [set(page.items) for page in pages] == [{f"zones/{ZONE}", f"zones/{OTHER_ZONE}"}] * 3
    assert sorted(i.name for page in pages for scope in page.items.values() for i in scope.instances) == ["m0", "m1", "m2", "m3", "m4"]
    empty = [scope for page in pages for scope in page.items.values() if not scope.instances]
    assert {scope.warning.code for scope in empty} == {"NO_RESULTS_ON_PAGE"}


def test_a_page_holds_five_hundred_and_no_more(server: ComputeServer, instances: Any) -> None:
    for number in range(501):
        server.world.launch(f"m{number}", PROJECT, ZONE)

    pages = list(instances.aggregated_list(request={"project": PROJECT}).pages)

    assert [len(page.items[f"zones/{ZONE}"].instances) for page in pages] == [500, 1]
    with pytest.raises(exceptions.BadRequest):
        instances.aggregated_list(request={"project": PROJECT, "max_results": 501})


@pytest.mark.parametrize("how", ["unreachable", "warning", "silent"])
def test_a_zone_that_is_out_is_left_out_of_the_listing_the_way_it_was_told_to(server: ComputeServer, instances: Any, how: str) -> None:
    server.world.launch("seen", PROJECT, ZONE)
    server.world.launch("unseen", PROJECT, OTHER_ZONE)
    server.world.lost[OTHER_ZONE] = how

    page = next(iter(instances.aggregated_list(request={"project": PROJECT}).pages))

    assert [i.name for scope in page.items.values() for i in scope.instances] == ["seen"]
    assert list(page.unreachables) == ([f"projects/{PROJECT}/zones/{OTHER_ZONE}"] if how == "unreachable" else [])
    warned = page.items[f"zones/{OTHER_ZONE}"].warning.code if f"zones/{OTHER_ZONE}" in page.items else None
    assert warned == ("UNREACHABLE" if how == "warning" else None)


def test_a_stop_takes_the_time_of_its_operation(server: ComputeServer, instances: Any, operations: Any) -> None:
    server.world.launch("m", PROJECT, ZONE)
    server.world.op_s = float("inf")

    operation = instances.stop_unary(request=at("m"))
    before = (status(instances, "m"), operation.status.name)
    server.world.settle(everything=True)
    after = (status(instances, "m"), operations.get(project=PROJECT, zone=ZONE, operation=operation.name).status.name)

    assert before == ("STOPPING", "RUNNING")
    assert after == ("TERMINATED", "DONE")
    assert instances.get(request=at("m")).last_stop_timestamp


def test_an_operation_can_be_done_and_have_failed(server: ComputeServer, instances: Any, operations: Any) -> None:
    server.world.launch("m", PROJECT, ZONE)
    instances.stop_unary(request=at("m"))
    server.world.op_errors["start"] = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "no", "http": 503}]

    operation = instances.start_unary(request=at("m"))
    ended = operations.get(project=PROJECT, zone=ZONE, operation=operation.name)

    assert (ended.status.name, ended.progress, ended.http_error_status_code) == ("DONE", 100, 503)
    assert [error.code for error in ended.error.errors] == ["ZONE_RESOURCE_POOL_EXHAUSTED"]
    assert status(instances, "m") == "TERMINATED"


def test_a_machine_is_found_by_name_and_by_number(server: ComputeServer, instances: Any) -> None:
    number = server.world.launch("m", PROJECT, ZONE)["id"]

    assert instances.get(request=at("m")).id == instances.get(request=at(number)).id == int(number)


def test_a_local_ssd_needs_a_choice(server: ComputeServer, instances: Any) -> None:
    server.world.launch("m", PROJECT, ZONE, "a2-ultragpu-1g")

    with pytest.raises(exceptions.BadRequest, match="undefined value for `discard-local-ssd`"):
        instances.stop_unary(request=at("m"))
    instances.stop_unary(request=at("m", discard_local_ssd=False))

    assert status(instances, "m") == "TERMINATED"


def test_labels_need_the_fingerprint_of_what_is_there(server: ComputeServer, instances: Any) -> None:
    server.world.launch("m", PROJECT, ZONE, labels={"team": "ml"})
    mark = instances.get(request=at("m")).label_fingerprint

    def set_labels(mark: str, **labels: str) -> None:
        asked = compute_v1.InstancesSetLabelsRequest(labels=labels, label_fingerprint=mark)
        instances.set_labels_unary(request=at("m", instances_set_labels_request_resource=asked))

    set_labels(mark, team="ml", reaper="warned")
    for stale in (mark, ""):
        with pytest.raises(exceptions.PreconditionFailed):
            set_labels(stale, team="other")

    assert dict(instances.get(request=at("m")).labels) == {"team": "ml", "reaper": "warned"}


@pytest.mark.parametrize(
    "labels",
    [{"Owner": "a"}, {"owner": "ada@example.com"}, {"until": "2026-12-24T10:00:00Z"}, {"a.b": "c"}, {"1st": "x"}, {"k": "v" * 64},
     {f"k{n}": "" for n in range(65)}],
    ids=["upper_case_key", "mail_address", "time", "dot", "digit_first", "too_long", "too_many"],
)  # fmt: skip
def test_labels_have_rules(server: ComputeServer, labels: dict[str, str]) -> None:
    mark = server.world.launch("m", PROJECT, ZONE)["labelFingerprint"]

    with pytest.raises(Refusal) as caught:
        server.world.set_labels(PROJECT, ZONE, "m", {"labels": labels, "labelFingerprint": mark}, {})

    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("verb", "machine"),
    [
        ("suspend", {"guestAccelerators": [{"acceleratorType": "nvidia-l4", "acceleratorCount": 1}]}),
        ("suspend", {"confidentialInstanceConfig": {"enableConfidentialCompute": True}}),
        ("suspend", {"status": "TERMINATED"}),
        ("suspend", {"status": "REPAIRING"}),
        ("resume", {"status": "TERMINATED"}),
        ("start", {"status": "SUSPENDED"}),
        ("start", {"status": "STOPPING"}),
        ("delete", {"deletionProtection": True}),
    ],
)
def test_what_google_refuses_is_refused(server: ComputeServer, instances: Any, verb: str, machine: dict[str, Any]) -> None:
    native = server.world.launch("m", PROJECT, ZONE, "e2-standard-8", **machine)["id"]

    with pytest.raises(exceptions.BadRequest):
        getattr(instances, f"{verb}_unary")(request=at("m"))

    assert server.world.machine(native)["status"] == machine.get("status", "RUNNING")


def test_suspend_and_resume(server: ComputeServer, instances: Any) -> None:
    server.world.launch("m", PROJECT, ZONE, "e2-standard-8")

    instances.suspend_unary(request=at("m"))
    suspended = status(instances, "m")
    instances.resume_unary(request=at("m"))

    assert (suspended, status(instances, "m")) == ("SUSPENDED", "RUNNING")


def test_one_request_id_is_one_operation(server: ComputeServer, instances: Any) -> None:
    server.world.launch("m", PROJECT, ZONE)
    request = str(uuid.uuid4())

    first = instances.stop_unary(request=at("m", request_id=request))
    again = instances.stop_unary(request=at("m", request_id=request))

    assert first.name == again.name
    assert first.client_operation_id == request
    with pytest.raises(exceptions.BadRequest):
        instances.stop_unary(request=at("m", request_id=str(uuid.UUID(int=0))))


@pytest.mark.parametrize(
    ("where", "code"),
    [({"name": "nobody"}, 404), ({"name": "m", "zone": "mars-central1-a"}, 400)],
    ids=["no_such_machine", "no_such_zone"],
)
def test_what_is_not_there_is_not_found(server: ComputeServer, instances: Any, where: dict[str, str], code: int) -> None:
    server.world.launch("m", PROJECT, ZONE)

    with pytest.raises(exceptions.GoogleAPICallError) as caught:
        instances.get(request=at(**where), retry=None)

    assert caught.value.code == code


def test_a_deleted_machine_is_gone(server: ComputeServer, instances: Any) -> None:
    server.world.launch("m", PROJECT, ZONE)

    instances.delete_unary(request=at("m"))

    with pytest.raises(exceptions.NotFound):
        instances.get(request=at("m"))


def test_it_fails_on_request_before_and_after_doing(server: ComputeServer, instances: Any) -> None:
    before, after = (server.world.launch(name, PROJECT, ZONE)["id"] for name in ("before", "after"))
    server.fail("compute.instances.stop", 403, "rateLimitExceeded")
    server.fail("compute.instances.stop", 503, after=True)

    with pytest.raises(exceptions.Forbidden) as caught:
        instances.stop_unary(request=at(before))
    with pytest.raises(exceptions.ServiceUnavailable):
        instances.stop_unary(request=at(after))

    assert [error["reason"] for error in caught.value.errors] == ["rateLimitExceeded"]
    assert (server.world.machine(before)["status"], server.world.machine(after)["status"]) == ("RUNNING", "STOPPING")


def test_it_knows_what_types_and_policies_are(server: ComputeServer) -> None:
    link = server.world.add_policy("nights", PROJECT, "us-central1", instanceSchedulePolicy={"timeZone": "UTC", "vmStopSchedule": {"schedule": "0 20 * * *"}})

    bare, ultra = (google_client("MachineTypes", server).get(project=PROJECT, zone=ZONE, machine_type=name) for name in ("e2-standard-8", "a2-ultragpu-1g"))
    (page,) = google_client("ResourcePolicies", server).aggregated_list(request={"project": PROJECT}).pages

    assert (list(bare.accelerators), bare.bundled_local_ssds.partition_count) == ([], 0)
    assert [(a.guest_accelerator_type, a.guest_accelerator_count) for a in ultra.accelerators] == [("nvidia-a100-80gb", 1)]
    assert ultra.bundled_local_ssds.partition_count == 1
    assert [policy.self_link for policy in page.items["regions/us-central1"].resource_policies] == [link]


def test_its_date_can_be_another(server: ComputeServer) -> None:
    server.ahead = timedelta(minutes=5)

    with urllib.request.urlopen(f"{server.url}/compute/v1/projects/{PROJECT}/aggregated/instances") as answer:
        told = parsedate_to_datetime(answer.headers["Date"])

    assert timedelta(minutes=4) < told - datetime.now(UTC) < timedelta(minutes=6)


# --- the checks themselves --------------------------------------------------------------------------------------------


def test_a_resource_with_a_field_that_google_lacks_does_not_come_into_being(server: ComputeServer) -> None:
    with pytest.raises(Breach, match="idleSince"):
        server.world.launch("m", PROJECT, ZONE, idleSince="today")


@pytest.mark.parametrize("value", ["PAUSED", 7], ids=["no_such_word", "no_word"])
def test_a_status_that_google_lacks_does_not_come_into_being(server: ComputeServer, value: object) -> None:
    with pytest.raises(Breach, match="status"):
        server.world.launch("m", PROJECT, ZONE, status=value)


@pytest.mark.parametrize(
    "path",
    [f"/compute/v1/projects/{PROJECT}/aggregated/instances?returnEverything=true", f"/compute/v1/projects/{PROJECT}/aggregated/instances?maxResults=many",
     f"/compute/v1/projects/{PROJECT}/zones/{ZONE.upper()}/instances/m"],
    ids=["unknown_parameter", "not_a_number", "upper_case"],
)  # fmt: skip
def test_a_request_that_google_lacks_is_told(server: ComputeServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(server.url + path)

    assert json.loads(caught.value.read())["error"]["errors"][0]["reason"] == "fakeIsWrong"


def test_a_wrong_answer_is_told(server: ComputeServer, instances: Any) -> None:
    native = server.world.launch("m", PROJECT, ZONE)["id"]
    server.world.machine(native)["notAField"] = 1

    with pytest.raises(exceptions.InternalServerError, match="notAField"):
        instances.get(request=at("m"), retry=None)
