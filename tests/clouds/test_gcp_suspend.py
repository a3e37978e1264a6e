"""Suspending on Google: only what Google suspends, told before, and undone by a resume."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import compute_v1

from reaper.clouds.gcp.instances import parse_instance
from reaper.clouds.gcp.types import TypeFacts
from reaper.demo.compute_server import ComputeServer
from reaper.errors import CloudError, NoCapacity, Protected, Unsupported
from reaper.model.kinds.instance import Hindrance, InstanceState
from tests.clouds.gce import adapter, gid
from tests.fakes.gce import PROJECT, ZONE, compute_server

SUSPEND, RESUME, START = (f"compute.instances.{word}" for word in ("suspend", "resume", "start"))
PLAIN = TypeFacts(gpus=0, local_disks=0, cpus=8, memory_mb=32768)
DISK = {"type_": "PERSISTENT", "source": "projects/p/zones/z/disks/d"}
ON_DEMAND = {"provisioning_model": "STANDARD"}


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


@pytest.mark.parametrize(
    ("facts", "fields", "expected"),
    [
        (PLAIN, {}, (True, None)),
        (PLAIN, {"guest_accelerators": [{"accelerator_type": "nvidia-tesla-t4", "accelerator_count": 1}]}, (False, "GPUs")),
        (TypeFacts(1, "L4", 0, memory_mb=32768), {}, (False, "GPUs")),
        (TypeFacts(), {}, (None, None)),
        (TypeFacts(0, None, 0), {}, (None, None)),
        (TypeFacts(0, None, 0, memory_mb=208 * 1024), {}, (True, None)),
        (TypeFacts(0, None, 0, memory_mb=208 * 1024 + 1), {}, (False, "208 GB")),
        (TypeFacts(0, None, 1, memory_mb=32768), {}, (False, "local SSDs")),
        (PLAIN, {"disks": [DISK, {"type_": "SCRATCH"}]}, (False, "local SSDs")),
        (PLAIN, {"disks": []}, (None, None)),
        (PLAIN, {"scheduling": {"provisioning_model": "SPOT"}}, (False, "take back")),
        (PLAIN, {"scheduling": {"preemptible": True}}, (False, "take back")),
        (PLAIN, {"scheduling": {}}, (None, None)),
        (PLAIN, {"confidential_instance_config": {"enable_confidential_compute": True}}, (False, "confidential")),
        (PLAIN, {"confidential_instance_config": {"confidential_instance_type": "TDX"}}, (False, "confidential")),
        (PLAIN, {"confidential_instance_config": {"enable_confidential_compute": False}}, (True, None)),
        (PLAIN, {"disks": [{**DISK, "disk_encryption_key": {"sha256": "x"}}]}, (False, "Google does not hold")),
        (PLAIN, {"disks": [{**DISK, "disk_encryption_key": {"kms_key_name": "projects/p/k"}}]}, (True, None)),
        (TypeFacts(0, None, 0, memory_mb=32768, tpu=True), {}, (False, "TPU")),
    ],
    ids=["plain", "attached_gpus", "gpus_of_its_type", "nothing_known", "memory_not_known", "just_so_much_memory", "more_memory", "ssds_of_its_type", "local_ssds",
         "disks_not_told", "spot", "preemptible", "how_it_is_paid_for_not_told", "confidential", "confidential_by_type", "not_confidential", "a_key_of_its_owners",
         "a_key_that_google_holds", "tpu"],
)  # fmt: skip
def test_what_google_does_not_suspend_or_might_not_is_not_suspended(facts: TypeFacts, fields: dict[str, Any], expected: tuple[bool | None, str | None]) -> None:
    raw = compute_v1.Instance(**{"id": 7, "machine_type": "zones/z/machineTypes/t", "disks": [DISK], "scheduling": ON_DEMAND, **fields})
    found = parse_instance(compute_v1.Instance.pb(raw), project=PROJECT, zone=ZONE, types={"t": facts}, policies={})

    assert found.suspends is expected[0]
    assert (expected[1] or "") in (found.suspends_not or "")
    assert (found.suspends_not is None) is (expected[1] is None)


def test_a_bare_metal_machine_is_not_suspended() -> None:
    raw = compute_v1.Instance(id=7, machine_type="zones/z/machineTypes/c3-standard-192-metal", disks=[DISK], scheduling=ON_DEMAND)

    assert parse_instance(compute_v1.Instance.pb(raw), project=PROJECT, zone=ZONE, types={"c3-standard-192-metal": PLAIN}, policies={}).suspends is False


def test_it_is_suspended_and_a_start_resumes_it(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8")["id"])
    cloud = adapter(server)
    cloud.list()
    before = cloud.get(resource)

    cloud.hibernate(resource)
    suspended = cloud.get(resource)
    cloud.start(resource)

    assert (before.suspends, suspended.state, cloud.get(resource).state) == (True, InstanceState.SUSPENDED, InstanceState.RUNNING)
    assert suspended.changed_at is not None
    assert server.mutations() == [SUSPEND, RESUME]


def test_what_is_stopped_is_started_and_not_resumed(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8", status="TERMINATED")["id"])

    adapter(server).start(resource)

    assert server.mutations() == [START]


@pytest.mark.parametrize(("type", "sent"), [("g2-standard-8", 1), ("n2-highmem-32", 1), ("z3-highmem-88", 0)], ids=["gpus", "memory", "local_ssds"])
def test_what_google_refuses_stays_up_and_is_not_stopped_instead(server: ComputeServer, type: str, sent: int) -> None:
    card = [{"acceleratorType": "nvidia-l4", "acceleratorCount": 1}] if type == "g2-standard-8" else []
    resource = gid(server.world.launch("m", PROJECT, ZONE, type, guestAccelerators=card)["id"])

    with pytest.raises(Unsupported, match=str(resource)):
        adapter(server).hibernate(resource)

    assert server.world.machine(resource.native)["status"] == "RUNNING"
    assert len(server.mutations()) == sent


def test_protection_from_deletion_bars_it_too(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8", deletionProtection=True)["id"])

    with pytest.raises(Protected):
        adapter(server).hibernate(resource)
    adapter(server, settings={"deletion_protection": "ignore"}).hibernate(resource)

    assert server.mutations() == [SUSPEND]


def test_a_resume_that_meets_a_sold_out_zone_names_zone_and_type(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8", status="SUSPENDED")["id"])
    server.world.op_errors["resume"] = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none left"}]

    with pytest.raises(NoCapacity, match=rf"resume {resource}.*zone {ZONE}, e2-standard-8"):
        adapter(server).start(resource)

    assert adapter(server).get(resource).state is InstanceState.SUSPENDED


LATE = [
    ({"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "x"}, Hindrance.CAPACITY), ({"code": "QUOTA_EXCEEDED", "message": "x"}, Hindrance.QUOTA),
    ({"code": "KMS_KEY_DISABLED", "message": "x"}, Hindrance.KEY), ({"code": "INTERNAL_ERROR", "message": "x"}, Hindrance.CLOUD),
]  # fmt: skip


@pytest.mark.parametrize(("ended", "met"), LATE, ids=lambda value: value.get("code") if isinstance(value, dict) else "")
@pytest.mark.parametrize("down", ["TERMINATED", "SUSPENDED"])
def test_what_a_start_met_late_sets_the_pace_of_the_next(server: ComputeServer, down: str, ended: dict[str, Any], met: Hindrance) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8", status=down)["id"])
    server.world.op_errors["start" if down == "TERMINATED" else "resume"] = [ended]
    server.world.op_s = float("inf")
    cloud = adapter(server)

    cloud.start(resource)
    server.world.settle(everything=True)
    machine = cloud.get(resource)

    assert machine.fell_back is met
    assert ended["code"] in (machine.state_reason or "")


def test_a_refused_suspend_is_an_error_of_ours(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, "e2-standard-8", status="REPAIRING")["id"])

    with pytest.raises(CloudError, match="suspend"):
        adapter(server).hibernate(resource)
