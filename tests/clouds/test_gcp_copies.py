"""Snapshots on Google: one a disk, begun once whatever is lost, and counted only when it is what it should be."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from reaper.clouds.gcp.cloud import GcpCloud
from reaper.demo.compute_server import ComputeServer
from reaper.errors import AnswerLost, CloudError, Denied, Protected, QuotaReached, Throttled, Unsupported
from reaper.model.kinds.snapshot import Snapshot, SnapshotState
from reaper.model.resource import ResourceId
from tests.clouds.gce import adapter, gid
from tests.fakes.gce import PROJECT, ZONE, compute_server

INSERT, LIST, DELETE = "compute.snapshots.insert", "compute.snapshots.list", "compute.instances.delete"
KEY = "projects/keys/locations/us/keyRings/r/cryptoKeys/k"
ATTEMPT = "a-0123456789ab"
TAGS = {
    "Name": "trainer data before stop-and-snapshot", "idle-reaper:attempt": ATTEMPT, "idle-reaper:machine": "gcp:ml-research:us-central1-a:instance:5",
    "idle-reaper:disk": "data", "idle-reaper:taken-at": "2026-12-24T10:00:00+00:00", "idle-reaper:because": "every GPU at or below 5%",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def disk(server: ComputeServer, name: str, place: str = f"zones/{ZONE}", **more: Any) -> dict[str, Any]:
    link = f"{server.world.base}/compute/v1/projects/{PROJECT}/{place}/disks/{name}"
    return {"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "deviceName": name, "source": link, "diskSizeGb": "100", "autoDelete": True, **more}


def launch(server: ComputeServer, *disks: dict[str, Any], **more: Any) -> ResourceId:
    made = server.world.launch("trainer", PROJECT, ZONE, status="TERMINATED", disks=list(disks) or [disk(server, "data")], **more)
    return gid(made["id"])


def only(cloud: GcpCloud, resource: ResourceId) -> Snapshot:
    (one,) = cloud.snapshots(resource, ATTEMPT)
    return one


def held(server: ComputeServer) -> list[dict[str, Any]]:
    return list(server.world.shelves.snapshots.values())


def test_a_snapshot_is_read_back_complete_and_of_its_disk(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)

    name = cloud.snapshot(resource, "data", TAGS)
    found = only(cloud, resource)

    assert (found.id, found.volume, found.state, found.size_gib, found.encrypted) == (name, "data", SnapshotState.COMPLETED, 100, True)
    assert found.tags["idle-reaper:attempt"] == ATTEMPT
    assert found.started_at is not None
    assert abs((found.started_at - datetime.now(UTC)).total_seconds()) < 60


def test_a_person_finds_it_by_its_labels_and_reads_in_its_description_what_it_is(server: ComputeServer) -> None:
    resource = launch(server)

    name = adapter(server).snapshot(resource, "data", TAGS)
    (raw,) = held(server)

    assert name.startswith("data-a-0123456789ab-")
    assert raw["labels"] == {
        "idle-reaper_attempt": ATTEMPT, "idle-reaper_machine": resource.native, "idle-reaper_disk": "data", "idle-reaper_zone": ZONE,
        "idle-reaper_taken-at": "1798106400", "idle-reaper_disk-number": raw["sourceDiskId"],
    }  # fmt: skip
    for word in (TAGS["Name"], "every GPU at or below 5%", "2026-12-24T10:00:00+00:00"):
        assert word in raw["description"]


def test_it_is_not_complete_before_google_says_ready(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    server.world.shelves.uploads = 2

    cloud.snapshot(resource, "data", TAGS)

    assert [only(cloud, resource).state for _ in range(3)] == [SnapshotState.PENDING, SnapshotState.PENDING, SnapshotState.COMPLETED]


@pytest.mark.parametrize(("status", "state"), [("FAILED", "failed"), ("DELETING", "failed"), ("CREATING", "pending"), ("UPLOADING", "pending")])
def test_no_other_status_is_a_complete_one(server: ComputeServer, status: str, state: str) -> None:
    resource, cloud = launch(server), adapter(server)
    cloud.snapshot(resource, "data", TAGS)
    server.world.shelves.uploads = 99
    server.world.shelves._look = lambda body: body.update(status=status)  # type: ignore[method-assign]

    assert only(cloud, resource).state == state


WRONG = [
    ({"sourceDiskId": "4711"}, "another disk of the same name"), ({"sourceDiskId": "0"}, "a disk without a number"), ({"diskSizeGb": "10"}, "another size"),
    ({"diskSizeGb": "0"}, "no size"), ({"snapshotEncryptionKey": {"kmsKeyName": KEY}}, "another key"),
]  # fmt: skip


@pytest.mark.parametrize("change", [row[0] for row in WRONG], ids=[row[1] for row in WRONG])
def test_one_that_is_ready_and_of_something_else_does_not_count(server: ComputeServer, change: dict[str, Any]) -> None:
    resource, cloud = launch(server), adapter(server)
    cloud.snapshot(resource, "data", TAGS)
    held(server)[0].update(change)

    assert only(cloud, resource).state is SnapshotState.FAILED


def test_a_new_disk_under_the_old_name_makes_the_old_snapshot_worthless(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    cloud.snapshot(resource, "data", TAGS)
    next(iter(server.world.shelves.disks.values()))["id"] = "4711"

    assert only(cloud, resource).state is SnapshotState.FAILED


def test_a_snapshot_outlives_its_machine_and_its_disk(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    cloud.snapshot(resource, "data", TAGS)
    cloud.terminate(resource)

    assert server.world.shelves.disks == {}
    assert only(cloud, resource).state is SnapshotState.COMPLETED
    held(server)[0]["sourceDiskId"] = "4711"
    assert only(cloud, resource).state is SnapshotState.FAILED


@pytest.mark.parametrize("version", ["", "/cryptoKeyVersions/3"])
def test_a_disk_under_a_key_has_its_snapshot_under_the_same(server: ComputeServer, version: str) -> None:
    resource = launch(server, disk(server, "data", diskEncryptionKey={"kmsKeyName": KEY + version}))
    cloud = adapter(server)

    cloud.snapshot(resource, "data", TAGS)

    assert held(server)[0]["snapshotEncryptionKey"] == {"kmsKeyName": KEY}
    assert only(cloud, resource).state is SnapshotState.COMPLETED
    del held(server)[0]["snapshotEncryptionKey"]
    assert only(cloud, resource).state is SnapshotState.FAILED


def test_a_disk_under_a_key_that_google_does_not_hold_cannot_be_snapshotted(server: ComputeServer) -> None:
    resource = launch(server, disk(server, "data", diskEncryptionKey={"sha256": "x" * 44}))

    with pytest.raises(Unsupported, match="a key that Google does not hold"):
        adapter(server).snapshot(resource, "data", TAGS)

    assert server.mutations() == []


def test_a_disk_in_two_zones_is_asked_for_in_its_region_and_never_mistaken_for_one_of_its_name(server: ComputeServer) -> None:
    resource = launch(server, disk(server, "data"), disk(server, "data", "regions/us-central1"))
    cloud = adapter(server)
    volumes = cloud.get(resource).volumes

    for volume in volumes:
        cloud.snapshot(resource, volume, TAGS)

    assert volumes == ("data", "us-central1/data")
    found = cloud.snapshots(resource, ATTEMPT)
    assert {(one.volume, one.state) for one in found} == {(volume, SnapshotState.COMPLETED) for volume in volumes}
    assert len({one.id for one in found}) == 2
    assert "compute.regionDisks.get" in server.methods()


def test_local_ssds_have_no_snapshot(server: ComputeServer) -> None:
    made = server.world.launch("m", PROJECT, ZONE, "a2-ultragpu-1g")

    assert adapter(server).get(gid(made["id"])).volumes == ("m",)


# --- what gets lost and what fails ------------------------------------------------------------------------------------


def test_asking_again_after_a_lost_answer_begins_no_second_one(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(INSERT, None, after=True)

    with pytest.raises(AnswerLost):
        adapter(server).snapshot(resource, "data", TAGS)
    before = held(server)[0].copy()
    server.world.shelves.snapshots.clear()  # not to be seen yet in the listing
    name = adapter(server).snapshot(resource, "data", TAGS)

    asked = [call.query["requestId"] for call in server.calls if call.method == INSERT]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    assert name == before["name"]
    assert held(server) == []  # the server took it for the same request


def test_an_operation_that_ends_with_an_error_leaves_none_and_is_a_failure(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    server.world.op_errors["snapshot"] = [{"code": "QUOTA_EXCEEDED", "message": "SNAPSHOTS"}]

    with pytest.raises(QuotaReached, match=f"snapshot data of {resource}"):
        cloud.snapshot(resource, "data", TAGS)
    none = cloud.snapshots(resource, ATTEMPT)
    cloud.snapshot(resource, "data", TAGS)

    assert none == ()
    assert len({call.query["requestId"] for call in server.calls if call.method == INSERT}) == 2
    assert only(cloud, resource).state is SnapshotState.COMPLETED


def test_a_snapshot_whose_operation_fails_late_is_told_when_it_is_asked_for_again(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    server.world.op_errors["snapshot"] = [{"code": "QUOTA_EXCEEDED", "message": "SNAPSHOTS"}]
    server.world.op_s = float("inf")

    cloud.snapshot(resource, "data", TAGS)
    server.world.settle(everything=True)
    server.world.op_s = 0

    assert cloud.snapshots(resource, ATTEMPT) == ()
    with pytest.raises(QuotaReached):
        cloud.snapshot(resource, "data", TAGS)
    cloud.snapshot(resource, "data", TAGS)
    assert only(cloud, resource).state is SnapshotState.COMPLETED


def test_one_that_failed_is_followed_by_another_under_another_name(server: ComputeServer) -> None:
    resource, cloud = launch(server), adapter(server)
    server.world.shelves.fails = {"data"}

    first = cloud.snapshot(resource, "data", TAGS)
    failed = only(cloud, resource)
    second = cloud.snapshot(resource, "data", TAGS)

    assert failed.state is SnapshotState.FAILED
    assert second != first
    assert [one.state for one in cloud.snapshots(resource, ATTEMPT)] == [SnapshotState.FAILED, SnapshotState.COMPLETED]


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(403, "forbidden", Denied), (403, "rateLimitExceeded", Throttled), (503, "backendError", AnswerLost), (403, "quotaExceeded", QuotaReached),
     (400, "resourceOperationRateExceeded", CloudError)],
)  # fmt: skip
def test_a_refused_snapshot_is_the_right_kind_of_error_and_sent_once(server: ComputeServer, status: int, reason: str, kind: type[CloudError]) -> None:
    resource = launch(server)
    server.fail(INSERT, status, reason, times=9)

    with pytest.raises(kind, match=str(resource)):
        adapter(server).snapshot(resource, "data", TAGS)

    assert server.methods().count(INSERT) == 1


def test_snapshots_that_cannot_be_listed_are_not_none(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(LIST, 403, "forbidden", times=9)

    with pytest.raises(Denied):
        adapter(server).snapshots(resource, ATTEMPT)


def test_only_those_of_the_attempt_are_found_over_all_pages(server: ComputeServer) -> None:
    resource = launch(server, *(disk(server, f"d{number}") for number in range(3)))
    cloud = adapter(server)
    for number in range(3):
        cloud.snapshot(resource, f"d{number}", TAGS)
    cloud.snapshot(resource, "d0", {**TAGS, "idle-reaper:attempt": "a-ffffffffffff"})
    whole = server.world.listed
    server.world.listed = lambda project, kind, query: whole(project, kind, {**query, "maxResults": "1"})  # type: ignore[method-assign]

    assert [one.volume for one in sorted(cloud.snapshots(resource, ATTEMPT), key=lambda one: one.volume)] == ["d0", "d1", "d2"]


def test_a_long_name_of_a_disk_fits_and_two_alike_do_not_meet(server: ComputeServer) -> None:
    alike = [f"{'x' * 60}-{letter}" for letter in "ab"]
    resource = launch(server, *(disk(server, name) for name in alike))
    cloud = adapter(server)

    names = {cloud.snapshot(resource, name, TAGS) for name in alike}

    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)


# --- ending a machine -------------------------------------------------------------------------------------------------


def test_a_machine_is_deleted_with_the_disks_that_go_with_it_and_without_those_that_stay(server: ComputeServer) -> None:
    resource = launch(server, disk(server, "boot"), disk(server, "kept", autoDelete=False))

    adapter(server).terminate(resource)

    assert server.world.instances == {}
    assert [link.rpartition("/")[2] for link in server.world.shelves.disks] == ["kept"]


@pytest.mark.parametrize("word", ["hold", "ignore"])
def test_protection_from_deletion_bars_deleting_whatever_else_it_means(server: ComputeServer, word: str) -> None:
    resource = launch(server, deletionProtection=True)
    cloud = adapter(server, settings={"deletion_protection": word})

    with pytest.raises(Protected):
        cloud.terminate(resource)

    assert cloud.protections(resource).termination_protected is True
    assert server.mutations() == []


def test_a_deletion_whose_operation_failed_is_a_failure(server: ComputeServer) -> None:
    resource = launch(server)
    server.world.op_errors["delete"] = [{"code": "INTERNAL_ERROR", "message": "x"}]

    with pytest.raises(CloudError, match="INTERNAL_ERROR"):
        adapter(server).terminate(resource)


def test_a_deletion_whose_answer_is_lost_is_not_sent_again(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(DELETE, None, after=True)

    with pytest.raises(AnswerLost):
        adapter(server).terminate(resource)

    assert server.methods().count(DELETE) == 1
