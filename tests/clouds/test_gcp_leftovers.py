"""What is left over on Google: snapshots whose disk is gone and addresses that nothing uses, told only where that is certain."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from reaper.demo.compute_server import ComputeServer
from reaper.model.kinds.disk import Leftover
from reaper.ports import Shelf
from tests.clouds.gce import adapter
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

DISKS, SNAPSHOTS, ADDRESSES = "compute.disks.aggregatedList", "compute.snapshots.list", "compute.addresses.aggregatedList"
REGION, OTHER_REGION = "us-central1", "europe-west4"
Json = dict[str, Any]


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def gone(server: ComputeServer, name: str = "old", place: str = ZONE, project: str = PROJECT) -> Json:
    """A disk that is not there any more."""
    disk = server.world.add_disk(name, project, place)
    server.world.shelves.disks = {link: body for link, body in server.world.shelves.disks.items() if body is not disk}
    return disk


def lying(shelves: tuple[Shelf, ...]) -> dict[str, tuple[str, Leftover]]:
    """By name: the place of the shelf, and what lies there."""
    return {one.name or "": (shelf.place.name, one) for shelf in shelves for one in shelf.leftovers}


def unread(shelves: tuple[Shelf, ...], place: str = "global", project: str = PROJECT) -> tuple[str, ...]:
    (shelf,) = [one for one in shelves if (one.place.account, one.place.name) == (project, place)]
    return shelf.unread


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_whose_disk_is_gone_is_told_and_one_whose_disk_is_there_is_not(server: ComputeServer) -> None:
    server.world.add_snapshot("of-it", PROJECT, server.world.add_disk("data", PROJECT, ZONE))
    server.world.add_snapshot("of-two-zones", PROJECT, server.world.add_disk("two", PROJECT, REGION))
    made = server.world.add_snapshot("orphan", PROJECT, gone(server), age=timedelta(days=400), labels={"team": "vision"})

    shelves = adapter(server).shelves()

    ((name, (place, one)),) = lying(shelves).items()
    assert (name, place, str(one.id)) == ("orphan", "global", f"gcp:{PROJECT}:global:snapshot:{made['id']}")
    assert (one.what, one.source, one.source_gone, one.size_gib, one.tags) == ("snapshot", "old", True, 100, {"team": "vision"})
    assert one.because == f"disk old in {ZONE}, of which it is, is not there any more"
    assert one.created_at is not None
    assert unread(shelves) == ()


def test_a_new_disk_of_the_same_name_does_not_make_the_old_one_come_back(server: ComputeServer) -> None:
    server.world.add_snapshot("orphan", PROJECT, gone(server, "data"))
    server.world.add_disk("data", PROJECT, ZONE)

    assert set(lying(adapter(server).shelves())) == {"orphan"}


def test_without_a_number_the_disk_is_looked_for_by_its_link(server: ComputeServer) -> None:
    for name, disk in (("there", server.world.add_disk("data", PROJECT, ZONE)), ("orphan", gone(server))):
        del server.world.add_snapshot(name, PROJECT, disk)["sourceDiskId"]

    assert set(lying(adapter(server).shelves())) == {"orphan"}


@pytest.mark.parametrize("how", ["unreachable", "warning", "silent"])
def test_while_a_zone_is_not_known_no_disk_is_said_to_be_gone(server: ComputeServer, how: str) -> None:
    server.world.add_snapshot("of-it", PROJECT, server.world.add_disk("data", PROJECT, OTHER_ZONE))
    server.world.add_snapshot("orphan", PROJECT, gone(server))
    cloud = adapter(server)
    cloud.shelves()
    server.world.lost[OTHER_ZONE] = how

    shelves = cloud.shelves()

    assert lying(shelves) == {}
    (why,) = unread(shelves)
    assert "of 2 of them it is not known whether their disk is gone" in why


def test_while_disks_cannot_be_listed_no_disk_is_said_to_be_gone(server: ComputeServer) -> None:
    server.world.add_snapshot("orphan", PROJECT, gone(server))
    server.fail(DISKS, 403, "forbidden", times=9)

    shelves = adapter(server).shelves()

    assert lying(shelves) == {}
    assert "disks could not be listed" in unread(shelves)[0]


def test_a_snapshot_of_another_projects_disk_is_told_only_where_that_project_was_read(server: ComputeServer) -> None:
    server.world.zones["ml-eval"] = (ZONE,)
    server.world.add_snapshot("of-theirs", PROJECT, server.world.add_disk("data", "ml-eval", ZONE))
    server.world.add_snapshot("orphan-of-theirs", PROJECT, gone(server, project="ml-eval"))

    alone, both = adapter(server).shelves(), adapter(server, PROJECT, "ml-eval").shelves()

    assert lying(alone) == {}
    assert "of 2 of them" in unread(alone)[0]
    assert set(lying(both)) == {"orphan-of-theirs"}
    assert unread(both) == ()


def test_a_snapshot_so_young_that_its_disk_may_be_younger_than_the_listing_is_not_told(server: ComputeServer) -> None:
    server.world.add_snapshot("young", PROJECT, gone(server), age=timedelta(minutes=14))
    server.world.add_snapshot("ageless", PROJECT, gone(server), creationTimestamp="")
    server.world.add_snapshot("settled", PROJECT, gone(server), age=timedelta(minutes=16))

    assert set(lying(adapter(server).shelves())) == {"settled"}


@pytest.mark.parametrize("fields", [{"status": "DELETING"}, {"status": "FAILED"}, {"status": "CREATING"}, {"sourceDisk": "", "sourceDiskId": ""}])
def test_what_is_not_a_snapshot_of_a_known_disk_is_not_told(server: ComputeServer, fields: Json) -> None:
    server.world.add_snapshot("other", PROJECT, gone(server), **fields)

    assert lying(adapter(server).shelves()) == {}


def test_where_zones_are_named_only_what_was_there_is_told(server: ComputeServer) -> None:
    server.world.add_snapshot("here", PROJECT, gone(server))
    server.world.add_snapshot("elsewhere", PROJECT, gone(server, place=OTHER_ZONE))
    server.world.add_snapshot("kept", PROJECT, server.world.add_disk("data", PROJECT, ZONE))
    server.world.add_address("ours", PROJECT, REGION)
    server.world.add_address("theirs", PROJECT, OTHER_REGION)

    assert set(lying(adapter(server, settings={"zones": (ZONE,)}).shelves())) == {"here", "ours"}


def test_all_pages_of_snapshots_are_read(server: ComputeServer) -> None:
    disk = gone(server)
    for number in range(7):
        server.world.add_snapshot(f"s{number}", PROJECT, disk)

    assert len(lying(adapter(server, page_size=2).shelves())) == 7
    assert server.methods().count(SNAPSHOTS) == 4


# --- addresses --------------------------------------------------------------------------------------------------------


def test_a_reserved_address_that_nothing_uses_is_told_where_it_is(server: ComputeServer) -> None:
    made = server.world.add_address("idle", PROJECT, REGION)
    server.world.add_address("everywhere", PROJECT, "global")

    found = lying(adapter(server).shelves())

    assert {name: place for name, (place, _) in found.items()} == {"idle": REGION, "everywhere": "global"}
    one = found["idle"][1]
    assert (str(one.id), one.what, one.source) == (f"gcp:{PROJECT}:{REGION}:address:{made['id']}", "address", "203.0.113.9")
    assert one.because == "it is reserved, and nothing uses it"
    assert one.source_gone is None


@pytest.mark.parametrize(
    "fields",
    [{"status": "IN_USE"}, {"status": "RESERVING"}, {"users": [f"projects/{PROJECT}/zones/z/instances/m"]}, {"addressType": "INTERNAL"},
     {"purpose": "NAT_AUTO"}, {"addressType": "UNSPECIFIED_TYPE"}],
    ids=["in_use", "reserving", "used_all_the_same", "internal", "of_a_gateway", "of_no_type"],
)  # fmt: skip
def test_an_address_that_is_used_or_costs_nothing_is_not_told(server: ComputeServer, fields: Json) -> None:
    server.world.add_address("other", PROJECT, REGION, **fields)

    assert lying(adapter(server).shelves()) == {}


# --- what could not be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "word", "regional"), [(SNAPSHOTS, "snapshots: ", False), (ADDRESSES, "addresses: ", True)])
@pytest.mark.parametrize(("status", "reason"), [(403, "forbidden"), (500, "backendError")])
def test_what_may_not_be_read_of_the_rest_is_said_and_leaves_disks_whole(
    server: ComputeServer, method: str, word: str, regional: bool, status: int, reason: str
) -> None:
    server.world.add_disk("data", PROJECT, ZONE)
    server.world.add_snapshot("orphan", PROJECT, gone(server))
    server.world.add_address("idle", PROJECT, REGION)
    server.fail(method, status, reason, times=999)

    shelves = adapter(server).shelves()

    assert all(one.failed is None for one in shelves)
    assert [disk.name for one in shelves for disk in one.disks] == ["data"]
    assert set(lying(shelves)) == ({"orphan"} if regional else {"idle"})
    (why,) = unread(shelves)
    assert why.startswith(word)
    assert reason in why
    assert unread(shelves, REGION) == ((why,) if regional else ())
    assert unread(shelves, ZONE) == ()


@pytest.mark.parametrize("method", [SNAPSHOTS, ADDRESSES])
def test_what_hangs_of_the_rest_is_said_in_time_and_leaves_disks_whole(server: ComputeServer, method: str) -> None:
    server.world.add_disk("data", PROJECT, ZONE)
    server.fail(method, 200, delay_s=5)

    shelves = adapter(server, list_within=1).shelves()

    assert all(one.failed is None for one in shelves)
    assert [disk.name for one in shelves for disk in one.disks] == ["data"]
    assert "no complete answer within 1 s" in unread(shelves)[0]


@pytest.mark.parametrize("how", ["unreachable", "warning", "silent"])
def test_addresses_of_a_region_that_is_not_reached_are_said_to_be_not_known_there(server: ComputeServer, how: str) -> None:
    server.world.add_address("unseen", PROJECT, OTHER_REGION)
    server.world.add_address("idle", PROJECT, REGION)
    cloud = adapter(server)
    cloud.shelves()
    server.world.lost[OTHER_REGION] = how

    shelves = cloud.shelves()

    assert set(lying(shelves)) == {"idle"}
    assert f"addresses of gcp:{PROJECT}:{OTHER_REGION}" in unread(shelves, OTHER_REGION)[0]
    assert unread(shelves, REGION) == ()


def test_an_address_in_a_region_of_which_the_disks_are_not_known_is_told_beside_them(server: ComputeServer) -> None:
    server.world.add_address("far", PROJECT, "asia-east1")
    server.world._scopes = lambda kind, project: [f"zones/{ZONE}"] if kind == "disks" else ["regions/asia-east1", "global"]  # type: ignore[method-assign]

    shelves = adapter(server).shelves()

    (shelf,) = [one for one in shelves if one.place.name == "asia-east1"]
    assert (shelf.disks, [one.name for one in shelf.leftovers]) == ((), ["far"])
    assert "no page of the listing speaks of it" in (shelf.failed or "")
