"""Disks on Google: listed whole or not known, place by place, and what the listing says of each."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud import compute_v1
from hypothesis import given
from hypothesis import strategies as st

from reaper.clouds.gcp.disks import once, parse_disk
from reaper.demo.compute_server import ComputeServer
from reaper.model.kinds.disk import Attachment, Disk, DiskState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Disks, Shelf
from tests.clouds.gce import adapter, gid
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

DISKS = "compute.disks.aggregatedList"
REGION, OTHER_REGION = "us-central1", "europe-west4"
NEVER = float("inf")
KMS = "projects/keys/locations/us/keyRings/r/cryptoKeys/k"


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def add(server: ComputeServer, name: str = "data", place: str = ZONE, project: str = PROJECT, **more: Any) -> ResourceId:
    return ResourceId("gcp", project, place, "disk", server.world.add_disk(name, project, place, **more)["id"])


def by_place(shelves: tuple[Shelf, ...], project: str = PROJECT) -> dict[str, Shelf]:
    return {one.place.name: one for one in shelves if one.place.account == project}


def found(shelves: tuple[Shelf, ...]) -> dict[ResourceId, Disk]:
    return {disk.id: disk for one in shelves for disk in one.disks}


def only(server: ComputeServer) -> Disk:
    (disk,) = found(adapter(server).shelves()).values()
    return disk


# --- whole or not known -----------------------------------------------------------------------------------------------


def test_every_zone_and_region_is_told_and_an_empty_one_is_a_whole_answer(server: ComputeServer) -> None:
    cloud: Disks = adapter(server)

    assert cloud.shelves() == tuple(Shelf(Place("gcp", PROJECT, name)) for name in (OTHER_REGION, OTHER_ZONE, REGION, ZONE, "global"))


def test_the_five_hundred_and_first_disk_is_listed(server: ComputeServer) -> None:
    expected = {add(server, f"d{number}", (ZONE, OTHER_ZONE)[number % 2]) for number in range(501)}

    shelves = adapter(server).shelves()

    assert found(shelves).keys() == expected
    assert all(one.failed is None for one in shelves)
    assert server.methods().count(DISKS) == 2


def test_a_listing_is_one_question_a_page_and_none_for_each_disk(server: ComputeServer) -> None:
    for number in range(5):
        add(server, f"d{number}", (ZONE, REGION)[number % 2])

    assert len(found(adapter(server, page_size=2).shelves())) == 5
    assert server.methods().count(DISKS) == 3
    assert set(server.methods()) == {DISKS, "compute.snapshots.list", "compute.addresses.aggregatedList"}
    assert server.mutations() == []


@pytest.mark.parametrize("how", ["unreachable", "warning"])
def test_disks_of_a_zone_that_google_does_not_reach_are_not_known_and_hide_no_others(server: ComputeServer, how: str) -> None:
    kept, two = add(server, "kept"), add(server, "two", OTHER_REGION)
    add(server, "unseen", OTHER_ZONE)
    server.world.lost[OTHER_ZONE] = how

    shelves = by_place(adapter(server).shelves())

    assert [disk.id for disk in shelves[ZONE].disks] == [kept]
    assert [disk.id for disk in shelves[OTHER_REGION].disks] == [two]
    assert shelves[OTHER_ZONE].disks == ()
    assert f"gcp:{PROJECT}:{OTHER_ZONE}: Google" in (shelves[OTHER_ZONE].failed or "")


@pytest.mark.parametrize("how", ["unreachable", "warning"])
def test_a_region_that_google_does_not_reach_is_not_known(server: ComputeServer, how: str) -> None:
    add(server, "unseen", OTHER_REGION)
    kept = add(server, "kept", REGION)
    server.world.lost[OTHER_REGION] = how

    shelves = by_place(adapter(server).shelves())

    assert (shelves[OTHER_REGION].disks, shelves[OTHER_REGION].failed is None) == ((), False)
    assert [disk.id for disk in shelves[REGION].disks] == [kept]
    assert (shelves[OTHER_ZONE].failed is None) == (how == "warning")  # "regions/r" among the unreachable ones is all of its zones


@pytest.mark.parametrize("before", ["a_listing_of_disks", "a_listing_of_machines"])
def test_a_zone_of_which_google_does_not_speak_any_more_is_not_known(server: ComputeServer, before: str) -> None:
    add(server, "unseen", OTHER_ZONE)
    cloud = adapter(server)
    if before == "a_listing_of_disks":
        cloud.shelves()
    else:
        cloud.list()
    server.world.lost[OTHER_ZONE] = "silent"

    shelves = by_place(cloud.shelves())

    assert "no page of the listing speaks of it" in (shelves[OTHER_ZONE].failed or "")
    assert shelves[ZONE].failed is None


def test_a_page_that_fails_makes_the_whole_project_unknown(server: ComputeServer) -> None:
    for number in range(4):
        add(server, f"d{number}", (ZONE, OTHER_ZONE)[number % 2])
    cloud = adapter(server, page_size=2)
    cloud.shelves()
    server.fail(DISKS, 403, "forbidden", skip=1)

    shelves = by_place(cloud.shelves())

    assert {ZONE, OTHER_ZONE, REGION, OTHER_REGION} <= shelves.keys()
    assert all(one.disks == () and "forbidden" in (one.failed or "") for name, one in shelves.items() if name != "global")


def test_a_project_that_may_not_be_read_hides_no_other(server: ComputeServer) -> None:
    kept = add(server)
    server.world.zones["ml-eval"] = (ZONE,)
    server.world.denied.add("ml-eval")

    shelves = adapter(server, PROJECT, "ml-eval").shelves()

    assert found(shelves).keys() == {kept}
    assert "forbidden" in (by_place(shelves, "ml-eval")["?"].failed or "")
    assert len(by_place(shelves, "ml-eval")["global"].unread) == 2


def test_a_project_without_compute_engine_is_left_out_unless_it_had_some(server: ComputeServer) -> None:
    server.world.zones["ml-eval"] = (ZONE,)
    server.world.off.add("ml-eval")
    never = adapter(server, PROJECT, "ml-eval").shelves()
    server.world.off.clear()
    cloud = adapter(server, PROJECT, "ml-eval")
    cloud.shelves()
    server.world.off.add("ml-eval")

    assert by_place(never, "ml-eval") == {}
    assert by_place(cloud.shelves(), "ml-eval")[ZONE].failed is not None


def test_a_project_that_hangs_fails_alone_and_in_time(server: ComputeServer) -> None:
    kept = add(server)
    server.world.zones["ml-eval"] = (ZONE,)
    server.fail(DISKS, 200, project="ml-eval", delay_s=5)
    cloud = adapter(server, PROJECT, "ml-eval", list_within=1)

    first, second = cloud.shelves(), cloud.shelves()

    for shelves in (first, second):
        assert found(shelves).keys() == {kept}
        assert "no complete answer within 1 s" in (by_place(shelves, "ml-eval")["?"].failed or "")
    assert [call.project for call in server.calls if call.method == DISKS].count("ml-eval") == 1


def test_a_folder_that_cannot_be_searched_is_a_place_that_failed(server: ComputeServer) -> None:
    server.beside.closed.add("folders/1")

    shelves = adapter(server, settings={"below": ("folders/1",)}).shelves()

    assert "permission" in (by_place(shelves, "folders/1")["?"].failed or "")
    assert by_place(shelves)[ZONE].failed is None


def test_a_disk_without_a_number_makes_its_zone_unknown_and_no_other(server: ComputeServer) -> None:
    del server.world.add_disk("nameless", PROJECT, OTHER_ZONE)["id"]
    kept = add(server)

    shelves = by_place(adapter(server).shelves())

    assert [disk.id for disk in shelves[ZONE].disks] == [kept]
    assert "without an id" in (shelves[OTHER_ZONE].failed or "")


def test_where_zones_are_named_only_they_are_looked_at_and_disks_in_two_of_them(server: ComputeServer) -> None:
    here = add(server)
    add(server, "elsewhere", OTHER_ZONE)
    add(server, "half", REGION)
    both = add(server, "both", OTHER_REGION)

    half = adapter(server, settings={"zones": (ZONE,)}).shelves()
    whole = adapter(server, settings={"zones": (ZONE, f"{OTHER_REGION}-a", f"{OTHER_REGION}-b")}).shelves()

    assert found(half).keys() == {here}
    assert by_place(half).keys() == {ZONE, REGION, "global"}
    assert both in found(whole)


def test_one_that_comes_on_two_pages_is_one_and_attached_if_it_was_on_either() -> None:
    free, used = parse(), parse(users=["projects/p/zones/z/instances/m"])

    assert once([free, free]) == (free,)
    assert once([used, free]) == once([free, used]) == (used,)


# --- one disk ---------------------------------------------------------------------------------------------------------


def parse(place: str = ZONE, **fields: Any) -> Disk:
    raw = compute_v1.Disk(**{"id": 7, "name": "data", "status": "READY", "size_gb": 100, "creation_timestamp": "2026-01-02T03:04:05.000-08:00", **fields})
    return parse_disk(compute_v1.Disk.pb(raw), project=PROJECT, place=place)


def test_a_plain_disk_as_the_listing_tells_it(server: ComputeServer) -> None:
    resource = add(
        server, "data", type="pd-ssd", labels={"team": "vision", "idle-reaper_owed-start": "1798106400"}, sizeGb="500", description="of the paper",
        lastAttachTimestamp="2026-11-20T10:00:00.000-08:00", lastDetachTimestamp="2026-11-21T10:00:00.000-08:00",
        sourceSnapshot=f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/snapshots/nightly",
        sourceImage="https://www.googleapis.com/compute/v1/projects/debian-cloud/global/images/debian-12", age=timedelta(days=300),
    )  # fmt: skip

    disk = only(server)

    assert (disk.id, str(disk.id)) == (resource, f"gcp:{PROJECT}:{ZONE}:disk:{resource.native}")
    assert (disk.state, disk.name, disk.size_gib, disk.type, disk.zone, disk.attachments) == (DiskState.AVAILABLE, "data", 500, "pd-ssd", ZONE, ())
    assert disk.tags == {"team": "vision", "idle-reaper:owed-start": "1798106400"}
    assert (disk.encrypted, disk.key, disk.multi_attach, disk.locked, disk.claim, disk.made_by) == (True, None, False, None, None, None)
    assert disk.attached_at == datetime(2026, 11, 20, 18, tzinfo=UTC)
    assert disk.detached_at == datetime(2026, 11, 21, 18, tzinfo=UTC)
    assert (disk.from_snapshot, disk.from_image) == ("nightly", "projects/debian-cloud/global/images/debian-12")
    assert (disk.iops, disk.mib_s, disk.monthly_usd) == (None, None, None)


def test_a_disk_belongs_to_its_machine_until_that_has_gone_without_it(server: ComputeServer) -> None:
    machine = server.world.launch("m", PROJECT, ZONE)
    machine["disks"][0]["autoDelete"] = False

    attached = only(server)
    adapter(server).terminate(gid(machine["id"]))
    server.world.settle(everything=True)
    left = only(server)

    assert (attached.state, attached.attachments) == (DiskState.IN_USE, (Attachment("m", attached.attached_at),))
    assert attached.attached_at is not None
    assert (left.id, left.state, left.attachments) == (attached.id, DiskState.AVAILABLE, ())
    assert left.detached_at is not None


EPOCH = "1969-12-31T16:00:00.000-08:00"


@pytest.mark.parametrize("said", [None, "", EPOCH, "2025-12-31T00:00:00.000-08:00", "yesterday", "2026-11-21T10:00:00", "0001-01-01T00:00:00+05:00"],
                         ids=["absent", "empty", "epoch", "before_it_was_made", "no_moment", "without_an_offset", "out_of_range"])  # fmt: skip
def test_what_was_never_attached_has_no_moments_of_it(said: str | None) -> None:
    more = {} if said is None else {"last_attach_timestamp": said, "last_detach_timestamp": said}

    disk = parse(**more)

    assert (disk.attached_at, disk.detached_at, disk.state) == (None, None, DiskState.AVAILABLE)
    assert disk.created_at == datetime(2026, 1, 2, 11, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("made", ["", EPOCH, "x"])
def test_a_disk_whose_beginning_is_not_told_is_of_no_known_age(made: str) -> None:
    disk = parse(creation_timestamp=made, last_attach_timestamp=EPOCH, last_detach_timestamp="2026-11-21T10:00:00Z")

    assert (disk.created_at, disk.attached_at, disk.detached_at) == (None, None, datetime(2026, 11, 21, 10, tzinfo=UTC))


USER = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/m"
STATES = [
    ("READY", [], DiskState.AVAILABLE), ("READY", [USER], DiskState.IN_USE), ("READY", [""], DiskState.IN_USE), ("CREATING", [], DiskState.CREATING),
    ("RESTORING", [], DiskState.CREATING), ("RESTORING", [USER], DiskState.IN_USE), ("FAILED", [], DiskState.FAILED), ("DELETING", [USER], DiskState.DELETING),
    ("UNAVAILABLE", [], DiskState.UNKNOWN), ("UNAVAILABLE", [USER], DiskState.IN_USE), ("", [], DiskState.UNKNOWN), ("MIGRATING", [], DiskState.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("status", "users", "state"), STATES)
def test_a_disk_is_available_only_where_google_says_ready_and_names_nobody(status: str, users: list[str], state: DiskState) -> None:
    disk = parse(status=status, users=users)

    assert disk.state is state
    assert len(disk.attachments) == len(users)


T1, T2 = "2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("users", "attached", "detached", "since"),
    [([USER], T2, T1, True), ([USER], T2, "", True), ([USER], T1, T2, False), ([USER, USER], T2, "", False), ([USER], "", "", False)],
    ids=["attached_again", "attached_once", "another_has_gone_since", "two", "not_told"],
)  # fmt: skip
def test_since_when_it_is_attached_is_told_only_where_that_is_plain(users: list[str], attached: str, detached: str, since: bool) -> None:
    disk = parse(users=users, last_attach_timestamp=attached, last_detach_timestamp=detached)

    assert disk.attachments[0] == Attachment("m", disk.attached_at if since else None)


@pytest.mark.parametrize(
    ("fields", "many"),
    [({}, False), ({"access_mode": "READ_WRITE_SINGLE"}, False), ({"access_mode": "READ_WRITE_MANY"}, True), ({"access_mode": "READ_ONLY_MANY"}, True),
     ({"access_mode": "WRITE_SOMETIMES"}, None), ({"users": [USER, USER + "2"]}, True)],
    ids=["by_default", "single", "many_writers", "many_readers", "another_word", "two_have_it"],
)  # fmt: skip
def test_whether_several_machines_may_hold_it(fields: dict[str, Any], many: bool | None) -> None:
    assert parse(**fields).multi_attach is many


@pytest.mark.parametrize(
    ("key", "told", "barred"),
    [({"kms_key_name": f"{KMS}/cryptoKeyVersions/3"}, KMS, False), ({"sha256": "abc="}, "sha256:abc=", True), ({}, "one that Google does not hold", True)],
    ids=["kms", "customer_supplied", "customer_supplied_and_not_told"],
)  # fmt: skip
def test_a_disk_under_a_key_that_google_does_not_hold_can_have_no_snapshot_of_ours(key: dict[str, str], told: str, barred: bool) -> None:
    disk = parse(disk_encryption_key=key)

    assert (disk.encrypted, disk.key) == (True, told)
    assert ("snapshot" in (disk.locked or "")) is barred


def test_a_disk_in_two_zones_is_in_its_region(server: ComputeServer) -> None:
    resource = add(server, "two", OTHER_REGION, type="pd-ssd")

    disk = only(server)

    assert (disk.id, disk.id.place, disk.zone) == (resource, OTHER_REGION, f"{OTHER_REGION}-a,{OTHER_REGION}-b")


LOCKS: list[tuple[dict[str, Any], str]] = [
    ({"storage_pool": "projects/p/zones/z/storagePools/pool"}, "storage pool pool"),
    ({"async_primary_disk": {"disk": "projects/p/zones/z/disks/first"}}, "copies another disk into it, first"),
    ({"async_primary_disk": {}}, "copies another disk into it"),
    ({"resource_status": {"async_primary_disk": {"state": "ACTIVE"}}}, "copies another disk into it"),
    ({"async_secondary_disks": {"projects/p/zones/y/disks/second": {}}}, "copies it into second"),
    ({"resource_status": {"async_secondary_disks": {"x": {"state": "ACTIVE"}}}}, "copies it into another disk"),
]


@pytest.mark.parametrize(("fields", "why"), LOCKS)
def test_what_bars_its_deletion_is_said(fields: dict[str, Any], why: str) -> None:
    assert why in (parse(**fields).locked or "")


def test_a_snapshot_schedule_and_what_it_is_a_copy_of_are_only_told() -> None:
    disk = parse(resource_policies=["projects/p/regions/r/resourcePolicies/nightly"], source_disk=f"projects/{PROJECT}/zones/z/disks/first", source_storage_object="gs://b/o")

    assert disk.locked is None
    assert [word in note for word, note in zip(("nightly", "first", "gs://b/o"), disk.notes, strict=True)] == [True] * 3


DRIVER = '{"kubernetes.io/created-for/pv/name":"pvc-1","kubernetes.io/created-for/pvc/name":"data-db-0","kubernetes.io/created-for/pvc/namespace":"prod","storage.gke.io/created-by":"pd.csi.storage.gke.io"}'
UUID = "94661ee3-8448-4859-92c8-7e1c52f96dea"
CLAIMS: list[tuple[dict[str, Any], str | None]] = [
    ({"description": DRIVER, "labels": {"goog-gke-volume": ""}}, "prod/data-db-0"),
    ({"description": '{"kubernetes.io/created-for/pvc/name":"data"}'}, "?/data"),
    ({"description": '{"kubernetes.io/created-for/pv/name":"pv-7"}'}, "pv-7"),
    ({"description": '{"kubernetes.io/created-for/pvc/name": "cut of'}, "Kubernetes, as its description says"),
    ({"labels": {"goog-gke-volume": ""}}, "GKE"),
    ({"labels": {"goog-gke-volume": "", "goog-k8s-cluster-name": "train"}}, "GKE cluster train"),
    ({"labels": {"goog-k8s-node-pool-name": "gpu"}}, "GKE"),
    ({"labels": {"kubernetes-io-created-for-pvc-name": "data", "kubernetes-io-created-for-pvc-namespace": "prod"}}, "prod/data"),
    ({"labels": {"kubernetes-io_created-for_pv_name": "pv-7"}}, "pv-7"),
    ({"labels": {"pvc-owner": "ada"}}, "Kubernetes (pvc-owner ada)"),
    ({"labels": {"kubernetes-io-cluster-prod": "owned"}}, "Kubernetes cluster prod"),
    ({"labels": {"k8s-app": "db"}}, "Kubernetes (k8s-app)"),
    ({"name": f"pvc-{UUID}"}, f"pvc-{UUID}"),
    ({"name": f"gke-prod-2a71d4f-pvc-{UUID}"}, f"gke-prod-2a71d4f-pvc-{UUID}"),
    ({"name": "pvc-notes", "description": "[1, 2]", "labels": {"team": "vision"}}, None),
    ({"description": '{"a":' * 1000}, None),
    ({"description": '{"kubernetes.io/created-for/pvc/name": 7}'}, "Kubernetes, as its description says"),
]


@pytest.mark.parametrize(("fields", "expected"), CLAIMS)
def test_what_kubernetes_wants_is_told_from_labels_description_and_name(fields: dict[str, Any], expected: str | None) -> None:
    assert parse(**fields).claim == expected


MAKERS: list[tuple[dict[str, Any], str | None]] = [
    ({"labels": {"goog-dataproc-cluster-name": "etl"}}, "Dataproc cluster etl"), ({"labels": {"packer-build": "7"}}, "an image build (Packer)"),
    ({"labels": {"created-by": "packer"}}, "an image build (Packer)"), ({"name": "packer-5f3a9c1e-aaaa"}, "an image build (Packer)"),
    ({"description": 'Disk created by Daisy in workflow "import" on behalf of ada.'}, "an image build (Daisy)"),
    ({"labels": {"goog-created-by": "migrate"}}, "migrate"), ({"description": DRIVER}, "pd.csi.storage.gke.io"),
    ({"labels": {"goog-terraform-provisioned": "true"}}, "Terraform"), ({"labels": {"goog-dm": "lab"}}, "Deployment Manager lab"),
    ({"labels": {"slurm_cluster_name": "hpc"}}, "Slurm cluster hpc"), ({"labels": {"team": "packers"}}, None), ({"name": "packer-notes"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), MAKERS)
def test_what_made_it_is_told_where_something_says_so(fields: dict[str, Any], expected: str | None) -> None:
    assert parse(**fields).made_by == expected


def test_what_the_operator_says_of_a_project_is_with_each_of_its_disks(server: ComputeServer) -> None:
    add(server)

    (disk,) = found(adapter(server, settings={"given": {PROJECT: {"owner": "eval-team"}}}).shelves()).values()

    assert disk.given == {"owner": "eval-team"}


# --- whatever comes ---------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20)
LINKS = st.one_of(TEXT, st.sampled_from([USER, "projects/p/zones/z/x/y", "/", "projects/"]))
TIMES = st.one_of(TEXT, st.sampled_from(["", EPOCH, T1, T2, "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"]))
DESCRIPTIONS = st.one_of(TEXT, st.sampled_from([DRIVER, "{", "[" * 5000, '{"a":' * 5000, "null", '{"kubernetes.io/created-for/pvc/name": null}']))
FIELDS = st.fixed_dictionaries({}, optional={
    "status": st.one_of(TEXT, st.sampled_from(["READY", "CREATING", "RESTORING", "FAILED", "DELETING", "UNAVAILABLE"])), "name": TEXT, "description": DESCRIPTIONS,
    "users": st.lists(LINKS, max_size=3), "labels": st.dictionaries(TEXT, TEXT, max_size=4), "size_gb": st.integers(-(2**63), 2**63 - 1),
    "creation_timestamp": TIMES, "last_attach_timestamp": TIMES, "last_detach_timestamp": TIMES, "type_": LINKS, "access_mode": TEXT, "region": LINKS,
    "replica_zones": st.lists(LINKS, max_size=3), "source_snapshot": LINKS, "source_image": LINKS, "source_disk": LINKS, "storage_pool": LINKS,
    "resource_policies": st.lists(LINKS, max_size=2), "disk_encryption_key": st.fixed_dictionaries({}, optional={"kms_key_name": TEXT, "sha256": TEXT}),
    "async_primary_disk": st.fixed_dictionaries({}, optional={"disk": LINKS}), "provisioned_iops": st.integers(-(2**63), 2**63 - 1),
})  # fmt: skip


@given(FIELDS)
def test_whatever_google_says_is_read_and_nothing_is_available_that_is_not_plainly_so(fields: dict[str, Any]) -> None:
    disk = parse_disk(compute_v1.Disk.pb(compute_v1.Disk(id=7, **fields)), project=PROJECT, place=ZONE)

    plainly = fields.get("status") == "READY" and not fields.get("users")
    assert (disk.state is DiskState.AVAILABLE) == plainly
    assert len(disk.attachments) == len(fields.get("users", ()))
    assert all(at is None or at.year >= 2010 for at in (disk.created_at, disk.attached_at, disk.detached_at))
    assert disk.size_gib is None or disk.size_gib > 0
    assert disk.monthly_usd is None
