"""What is read of a machine only once something is about to happen to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from reaper.demo.compute_server import ComputeServer
from reaper.model.kinds.instance import DiskKey
from tests.clouds.gce import adapter, gid
from tests.fakes.gce import PROJECT, ZONE, compute_server

ADDRESSES, COMMITMENTS = "compute.addresses.aggregatedList", "compute.regionCommitments.aggregatedList"
KEYS = "cloudkms.projects.locations.keyRings.cryptoKeys.get"
KEY = "projects/keys/locations/us/keyRings/r/cryptoKeys/k"
REGION = "us-central1"


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def nic(address: str | None) -> list[dict[str, Any]]:
    configs = [] if address is None else [{"name": "External NAT", "type": "ONE_TO_ONE_NAT", "natIP": address}]
    return [{"name": "nic0", "network": "projects/p/global/networks/default", "accessConfigs": configs}]


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "kept"), [("203.0.113.7", True), ("203.0.113.8", False), (None, None)], ids=["reserved", "ephemeral", "none"])
def test_whether_an_external_address_stays_is_known_once_it_matters(server: ComputeServer, address: str | None, kept: bool | None) -> None:
    server.world.shelves.addresses[(PROJECT, REGION)] = [{"name": "a", "address": "203.0.113.7", "status": "IN_USE", "addressType": "EXTERNAL"}]
    resource = gid(server.world.launch("m", PROJECT, ZONE, networkInterfaces=nic(address))["id"])
    cloud = adapter(server)
    cloud.list()
    before = cloud.get(resource)

    for _ in range(3):
        cloud.protections(resource)

    assert (before.public_address, before.address_kept) == (address, None)
    assert (cloud.get(resource).public_address, cloud.get(resource).address_kept) == (address, kept)
    assert server.methods().count(ADDRESSES) == (0 if address is None else 1)
    assert [machine.address_kept for place in cloud.list() for machine in place.instances] == [kept]


def test_addresses_that_may_not_be_listed_are_not_known_to_stay_or_to_change(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, networkInterfaces=nic("203.0.113.7"))["id"])
    server.fail(ADDRESSES, 403, "forbidden", times=99)
    cloud = adapter(server)

    told = [cloud.protections(resource) for _ in range(2)]

    assert [one.stop_protected for one in told] == [False, False]
    assert cloud.get(resource).address_kept is None
    assert server.methods().count(ADDRESSES) == 1


# --- keys -------------------------------------------------------------------------------------------------------------


def encrypted(server: ComputeServer, *keys: str) -> Any:
    disks = [
        {"type": "PERSISTENT", "deviceName": f"d{n}", "source": f"projects/{PROJECT}/zones/{ZONE}/disks/d{n}", "diskEncryptionKey": {"kmsKeyName": key}}
        for n, key in enumerate(keys)
    ]
    return gid(server.world.launch("m", PROJECT, ZONE, disks=disks)["id"])


@pytest.mark.parametrize(
    ("state", "told"),
    [("ENABLED", "Enabled"), ("DISABLED", "Disabled"), ("DESTROYED", "Destroyed"), ("DESTROY_SCHEDULED", "to be destroyed"), ("PENDING_GENERATION", "pending_generation")],
)
def test_the_state_of_a_disks_key_is_told(server: ComputeServer, state: str, told: str) -> None:
    resource = encrypted(server, f"{KEY}/cryptoKeyVersions/3", f"{KEY}/cryptoKeyVersions/1")
    server.beside.keys[KEY] = state
    cloud = adapter(server)

    for _ in range(3):
        protections = cloud.protections(resource)

    assert protections.keys == (DiskKey(KEY, told, ours=False),)
    assert server.methods().count(KEYS) == 1


def test_a_key_that_may_not_be_read_is_not_known_and_says_why(server: ComputeServer) -> None:
    resource = encrypted(server, KEY)

    (key,) = adapter(server).protections(resource).keys or ()

    assert key.state is None
    assert "notFound" in (key.because or "")


def test_disks_under_keys_of_googles_own_have_none_to_speak_of(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])

    assert adapter(server).protections(resource).keys == ()
    assert KEYS not in server.methods()


# --- commitments ------------------------------------------------------------------------------------------------------


def commitment(name: str = "gpus", accelerator: str = "nvidia-l4", status: str = "ACTIVE", region: str = REGION) -> dict[str, Any]:
    return {
        "name": name, "region": f"projects/{PROJECT}/regions/{region}", "status": status, "plan": "TWELVE_MONTH", "type": "GRAPHICS_OPTIMIZED",
        "resources": [{"type": "VCPU", "amount": "8"}, {"type": "ACCELERATOR", "acceleratorType": f"zones/z/acceleratorTypes/{accelerator}", "amount": "4"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("made", "covers"),
    [(commitment(), True), (commitment(status="EXPIRED"), False), (commitment(accelerator="nvidia-tesla-a100"), False), (commitment(region="europe-west4"), False)],
    ids=["active", "expired", "other_gpus", "another_region"],
)
def test_a_commitment_that_pays_for_its_gpus_is_told(server: ComputeServer, made: dict[str, Any], covers: bool) -> None:
    server.world.shelves.commitments[(PROJECT, REGION)] = [made]
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    cloud = adapter(server, settings={"price_list": True})
    cloud.list()

    told = [cloud.protections(resource).covered for _ in range(2)]

    assert told == ([f"commitment gpus pays for 4 nvidia-l4 in {REGION} and no other machine uses them"] * 2 if covers else [None, None])
    assert server.methods().count(COMMITMENTS) == 1


def test_attached_gpus_are_covered_too_and_nothing_is_asked_where_money_is_off(server: ComputeServer) -> None:
    server.world.shelves.commitments[(PROJECT, REGION)] = [commitment(accelerator="nvidia-tesla-t4")]
    card = [{"acceleratorType": "zones/z/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}]
    resource = gid(server.world.launch("m", PROJECT, ZONE, "n1-standard-8", guestAccelerators=card)["id"])

    assert "nvidia-tesla-t4" in (adapter(server, settings={"price_list": True}).protections(resource).covered or "")
    server.calls.clear()
    assert adapter(server).protections(resource).covered is None
    assert COMMITMENTS not in server.methods()


def test_commitments_that_may_not_be_listed_change_nothing(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    server.fail(COMMITMENTS, 403, "forbidden", times=99)

    told = adapter(server, settings={"price_list": True}).protections(resource)

    assert (told.stop_protected, told.covered) == (False, None)
