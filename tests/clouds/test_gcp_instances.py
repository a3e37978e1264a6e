"""One machine as Google tells it, as ours: every field from what Google's document allows, and what is missing stays missing."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud import compute_v1

from reaper.clouds.gcp.instances import OTHER, PLACEMENT, SCHEDULE, parse_instance, policy_kind
from reaper.clouds.gcp.types import NOTHING_KNOWN, TypeFacts, by_name, model, parse_type
from reaper.demo.compute_world import World
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from tests.fakes.discovery import Discovery, definitions
from tests.fakes.gce import PROJECT, ZONE

PLAIN = TypeFacts(gpus=0, local_disks=0)
POLICY = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies/nights"
KEY = f"projects/{PROJECT}/regions/us-central1/resourcePolicies/nights"
MIG = "projects/123456789012/zones/us-central1-a/instanceGroupManagers/train-a"


def parsed(type: str = "n1-standard-8", facts: TypeFacts = PLAIN, policies: dict[str, str] | None = None, without: tuple[str, ...] = (), **fields: Any) -> Instance:
    """``fields``: of Google's own resource, which are checked; ``without``: those that are left out."""
    body = World(check=Discovery().resource).launch("trainer", PROJECT, ZONE, type, **fields)
    raw = compute_v1.Instance.from_json(json.dumps({key: value for key, value in body.items() if key not in without}), ignore_unknown_fields=False)
    return parse_instance(compute_v1.Instance.pb(raw), project=PROJECT, zone=ZONE, types={type: facts}, policies=policies or {})


def gpus(*attached: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"acceleratorType": f"https://www.googleapis.com/compute/v1/projects/p/zones/z/acceleratorTypes/{name}", "acceleratorCount": n} for name, n in attached]


def metadata(**items: str) -> dict[str, Any]:
    return {"items": [{"key": key.replace("_", "-"), "value": value} for key, value in items.items()]}


# --- state and times --------------------------------------------------------------------------------------------------

STATES = {
    "PROVISIONING": InstanceState.PENDING, "STAGING": InstanceState.PENDING, "PENDING": InstanceState.PENDING, "RUNNING": InstanceState.RUNNING,
    "PENDING_STOP": InstanceState.STOPPING, "STOPPING": InstanceState.STOPPING, "DEPROVISIONING": InstanceState.STOPPING,
    "TERMINATED": InstanceState.STOPPED, "STOPPED": InstanceState.STOPPED,
    "SUSPENDING": InstanceState.SUSPENDING, "SUSPENDED": InstanceState.SUSPENDED, "REPAIRING": InstanceState.UNKNOWN,
}  # fmt: skip


@pytest.mark.parametrize("word", definitions()["Instance"]["properties"]["status"]["enum"])
def test_every_status_that_google_knows_is_one_of_ours(word: str) -> None:
    assert parsed(status=word).state is STATES[word]


@pytest.mark.parametrize("raw", [{"status": "HIBERNATING"}, {}], ids=["a_new_word", "none"])
def test_a_status_that_we_do_not_know_is_unknown(raw: dict[str, Any]) -> None:
    message = compute_v1.Instance(id=7, **raw)
    found = parse_instance(compute_v1.Instance.pb(message), project=PROJECT, zone=ZONE, types={}, policies={})

    assert found.state is InstanceState.UNKNOWN


@pytest.mark.parametrize("state", [InstanceState.SUSPENDED, InstanceState.SUSPENDING], ids=str)
def test_a_suspended_machine_does_not_work_and_is_not_one_that_we_stopped(state: InstanceState) -> None:
    assert not state.counts
    assert state not in (InstanceState.STOPPED, InstanceState.STOPPING)


def test_times_come_with_any_offset_and_are_utc() -> None:
    found = parsed(lastStartTimestamp="2026-11-30T02:00:00.000-08:00")

    assert found.launched_at == found.changed_at == datetime(2026, 11, 30, 10, tzinfo=UTC)


def test_a_machine_that_was_never_started_again_was_started_when_it_was_made() -> None:
    found = parsed(without=("lastStartTimestamp",), creationTimestamp="2026-11-30T02:00:00.000-08:00")

    assert (found.launched_at, found.changed_at) == (datetime(2026, 11, 30, 10, tzinfo=UTC), None)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-30T02:00:00"], ids=["empty", "no_time", "no_offset"])
def test_a_time_that_cannot_be_read_is_not_known_and_no_epoch(text: str) -> None:
    assert parsed(lastStartTimestamp=text, creationTimestamp=text).launched_at is None


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"lastStopTimestamp": "2026-11-30T12:00:00+00:00"}, datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ({"lastStopTimestamp": "2026-11-29T12:00:00+00:00"}, None),
        ({"lastStopTimestamp": ""}, None),
        ({}, None),
    ],
    ids=["stopped_since", "the_stop_before_the_last_start", "empty", "absent"],
)
def test_a_stopped_machine_says_when_it_was_stopped(times: dict[str, str], expected: datetime | None) -> None:
    assert parsed(status="TERMINATED", lastStartTimestamp="2026-11-30T09:00:00+00:00", **times).changed_at == expected


# --- GPUs and disks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attached", "facts", "expected"),
    [
        ((("nvidia-tesla-t4", 2),), PLAIN, (2, "T4")),
        ((), TypeFacts(8, "H100", 16), (8, "H100")),
        ((("nvidia-tesla-a100", 8),), TypeFacts(8, "A100", 0), (8, "A100")),
        ((("nvidia-tesla-t4", 1), ("nvidia-tesla-p4", 1)), PLAIN, (2, "P4+T4")),
        ((), PLAIN, (0, None)),
        ((), NOTHING_KNOWN, (None, None)),
        ((("nvidia-tesla-t4", 0),), PLAIN, (None, "T4")),
    ],
    ids=["attached", "brought_by_the_type", "told_twice_counts_once", "two_kinds", "none", "type_not_readable", "none_of_a_kind_is_no_answer"],
)  # fmt: skip
def test_gpus_are_attached_or_brought_by_the_type(attached: Any, facts: TypeFacts, expected: Any) -> None:
    found = parsed(facts=facts, guestAccelerators=gpus(*attached))

    assert (found.gpus, found.gpu_model) == expected


@pytest.mark.parametrize(
    ("google", "driver"),
    [
        ("nvidia-tesla-k80", "Tesla K80"), ("nvidia-tesla-p100", "Tesla P100-PCIE-16GB"), ("nvidia-tesla-v100", "Tesla V100-SXM2-16GB"),
        ("nvidia-tesla-t4", "Tesla T4"), ("nvidia-tesla-t4-vws", "Tesla T4"), ("nvidia-l4", "NVIDIA L4"), ("nvidia-tesla-a100", "NVIDIA A100-SXM4-40GB"),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-80GB"), ("nvidia-h100-80gb", "NVIDIA H100 80GB HBM3"), ("nvidia-h100-mega-80gb", "NVIDIA H100 80GB HBM3"),
        ("nvidia-h200-141gb", "NVIDIA H200"), ("nvidia-b200", "NVIDIA B200"), ("nvidia-rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ],
)  # fmt: skip
def test_a_model_has_the_words_that_the_driver_says(google: str, driver: str) -> None:
    from reaper.decide.correlate import _words

    assert _words(model(google)) <= _words(driver)
    assert _words(model(google))
    assert not _words(model("nvidia-l4")) <= _words("NVIDIA L40S")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("custom-8-32768", TypeFacts(0, None, 0, cpus=8, memory_mb=32768)),
        ("n2-custom-16-131072-ext", TypeFacts(0, None, 0, cpus=16, memory_mb=131072)), ("ct5lp-hightpu-4t", TypeFacts(0, None, None, tpu=True)),
        ("a2-highgpu-1g", None), ("n1-standard-8", None), ("customer-8", None),
    ],
)  # fmt: skip
def test_some_types_need_not_be_asked_for(name: str, expected: TypeFacts | None) -> None:
    assert by_name(name) == expected


def test_a_type_tells_what_it_brings() -> None:
    raw = compute_v1.MachineType(
        accelerators=[{"guest_accelerator_type": "nvidia-h100-80gb", "guest_accelerator_count": 8}], bundled_local_ssds={"partition_count": 16},
        guest_cpus=208, memory_mb=1916928,
    )  # fmt: skip

    brings = (("nvidia-h100-80gb", 8),)
    assert parse_type(compute_v1.MachineType.pb(raw)) == TypeFacts(8, "H100", 16, cpus=208, memory_mb=1916928, accelerators=brings)
    assert parse_type(compute_v1.MachineType.pb(compute_v1.MachineType(is_shared_cpu=True, guest_cpus=2, memory_mb=1024))).cpus is None
    assert parse_type(compute_v1.MachineType.pb(compute_v1.MachineType())) == TypeFacts(0, None, 0)
    tpu = compute_v1.MachineType(accelerators=[{"guest_accelerator_type": "ct5lp", "guest_accelerator_count": 4}])
    assert parse_type(compute_v1.MachineType.pb(tpu)) == TypeFacts(0, None, 0, tpu=True)


SSD = {"type": "SCRATCH", "interface": "NVME", "index": 1}


@pytest.mark.parametrize(
    ("disks", "facts", "expected"),
    [
        ([SSD, {**SSD, "index": 2}], PLAIN, (True, 2)),
        ([], TypeFacts(8, "H100", 16), (True, 16)),
        ([SSD], TypeFacts(8, "H100", 16), (True, 16)),
        ([], PLAIN, (False, 0)),
        ([], NOTHING_KNOWN, (False, None)),
    ],
    ids=["attached", "brought_by_the_type", "the_larger_number", "none", "none_and_the_type_not_readable"],
)  # fmt: skip
def test_local_ssds_are_attached_or_brought_by_the_type(disks: list[Any], facts: TypeFacts, expected: Any) -> None:
    boot = {"type": "PERSISTENT", "boot": True, "source": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/disks/trainer"}
    found = parsed(facts=facts, disks=[boot, *disks])

    assert (found.local_store, found.local_disks) == expected
    assert found.volumes == ("trainer",)


def test_an_answer_without_any_disk_does_not_say_that_there_are_no_local_ones() -> None:
    assert parsed(without=("disks",)).local_store is None


def test_disks_and_interfaces_are_sorted() -> None:
    def disk(name: str) -> dict[str, Any]:
        return {"type": "PERSISTENT", "source": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/disks/{name}"}

    nics = [{"name": name, "network": "global/networks/default", "subnetwork": f"regions/us-central1/subnetworks/{net}"} for name, net in (("nic1", "b"), ("nic0", "a"))]
    found = parsed(disks=[disk("z"), disk("a")], networkInterfaces=nics)

    assert (found.volumes, found.interfaces) == (("a", "z"), ("nic0@a", "nic1@b"))


# --- how it is paid for -----------------------------------------------------------------------------------------------

ON_DEMAND = {"provisioningModel": "STANDARD", "preemptible": False}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"scheduling": ON_DEMAND}, Lifecycle.ON_DEMAND),
        ({"scheduling": {"preemptible": False, "automaticRestart": True}}, Lifecycle.ON_DEMAND),
        ({"scheduling": {"preemptible": True}}, Lifecycle.SPOT),
        ({"scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}}, Lifecycle.SPOT),
        ({"scheduling": {"provisioningModel": "FLEX_START", "maxRunDuration": {"seconds": "3600"}}}, Lifecycle.OTHER),
        ({"scheduling": {"provisioningModel": "RESERVATION_BOUND"}}, Lifecycle.CAPACITY_BLOCK),
        ({"scheduling": {}}, None),
        ({"without": ("scheduling",)}, None),
    ],
    ids=["standard", "older_without_a_word", "preemptible", "spot", "flex_start", "reservation_bound", "empty", "absent"],
)
def test_how_it_is_paid_for(fields: dict[str, Any], expected: Lifecycle | None) -> None:
    found = parsed(**fields)

    assert found.lifecycle is expected
    assert found.spot_stops is (True if expected is Lifecycle.SPOT else None)


CONSUMED = {"reservationConsumptionInfo": {"consumedReservation": "projects/p/zones/z/reservations/block"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None)),
        ({"reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"}}, (None, None)),
        ({"reservationAffinity": {"consumeReservationType": "NO_RESERVATION"}}, (None, None)),
        ({"resourceStatus": CONSUMED}, ("block", False)),
        ({"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["projects/q/reservations/a"]}}, ("a", True)),
        ({"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}, ("that is not named", True)),
        ({"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["a"]}, "resourceStatus": CONSUMED}, ("block", True)),
    ],
    ids=["nothing_said", "any", "none", "consumes_one", "a_named_one", "one_without_a_name", "consumes_the_named_one"],
)
def test_a_reservation_that_it_runs_in_is_told(fields: dict[str, Any], expected: Any) -> None:
    found = parsed(**fields)

    assert (found.reservation, found.reserved_only) == expected


def test_a_machine_on_sole_tenant_nodes_is_on_a_host_of_its_own() -> None:
    nodes = {"nodeAffinities": [{"key": "compute.googleapis.com/node-group-name", "operator": "IN", "values": ["g"]}]}

    assert parsed(scheduling={**ON_DEMAND, **nodes}).tenancy == "host"
    assert parsed().tenancy is None


# --- who owns it ------------------------------------------------------------------------------------------------------

OWNED = [
    ({"metadata": metadata(created_by=MIG)}, "managed instance group train-a"),
    ({"metadata": metadata(created_by=MIG.replace("zones/us-central1-a", "regions/us-central1"))}, "managed instance group train-a"),
    ({"labels": {"goog-k8s-cluster-name": "prod", "goog-gke-node": ""}, "metadata": metadata(created_by=MIG)}, "GKE cluster prod"),
    ({"labels": {"goog-gke-node": ""}}, "GKE"),
    ({"metadata": metadata(kube_env="a: b")}, "Kubernetes"),
    ({"labels": {"goog-dataproc-cluster-name": "etl"}}, "Dataproc cluster etl"),
    ({"metadata": metadata(dataproc_cluster_name="etl")}, "Dataproc cluster etl"),
    ({"labels": {"goog-dataflow-job-name": "wc"}}, "Dataflow"),
    ({"labels": {"notebooks-product": "workbench-instances"}}, "Workbench"),
    ({"labels": {"goog-caip-notebook": ""}}, "Workbench"),
    ({"labels": {"goog-vertex-ai-training": "j"}}, "Vertex AI"),
    ({"labels": {"goog-colab-runtime": "r"}}, "Colab"),
    ({"labels": {"batch-job-id": "nightly", "batch-job-uid": "u"}}, "Batch job nightly"),
    ({"labels": {"slurm_cluster_name": "hpc"}}, "Slurm cluster hpc"),
    ({"metadata": {"items": [{"key": "slurm_instance_role", "value": "compute"}]}}, "Slurm"),
    ({"labels": {"ray-cluster-name": "r"}}, "Ray cluster r"),
    ({"labels": {"capg-cluster-prod": "owned"}}, "Kubernetes cluster prod"),
    ({"labels": {"karpenter-sh_nodepool": "p"}}, "Karpenter"),
    ({"labels": {"goog-something-new": "x"}}, "a Google service that labels its machines goog-something-new"),
    ({"type": "ct5lp-hightpu-4t", "facts": TypeFacts(0, None, None, tpu=True)}, "TPU"),
    ({"resourcePolicies": [POLICY], "policies": {KEY: SCHEDULE}}, "Google's instance schedule nights"),
    ({"resourcePolicies": [POLICY]}, "resource policy nights, which could not be read"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "word"), OWNED, ids=[row[1] for row in OWNED])
def test_who_else_owns_a_machine_is_told(fields: dict[str, Any], word: str) -> None:
    assert word in (parsed(**fields).managed_by or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"goog-terraform-provisioned": "true", "goog-ec-src": "vm_add-tf", "goog-ops-agent-policy": "v2"}},
        {"labels": {"team": "ml", "created-by": "ada"}},
        {"metadata": metadata(instance_template="projects/1/global/instanceTemplates/t", created_by="ada", enable_oslogin="true")},
        {"resourcePolicies": [POLICY], "policies": {KEY: PLACEMENT}},
        {"resourcePolicies": [POLICY], "policies": {KEY: OTHER}},
    ],
    ids=["how_it_was_made", "a_label_of_people", "a_template_and_a_name", "a_placement", "another_policy"],
)
def test_what_only_says_how_a_machine_was_made_is_no_owner(fields: dict[str, Any]) -> None:
    assert parsed(**fields).managed_by is None


@pytest.mark.parametrize(("kind", "group"), [(PLACEMENT, "nights"), (None, "nights"), (SCHEDULE, None), (OTHER, None)])
def test_machines_of_one_placement_are_of_one_job(kind: str | None, group: str | None) -> None:
    assert parsed(resourcePolicies=[POLICY], policies={} if kind is None else {KEY: kind}).placement_group == group


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"instance_schedule_policy": {"time_zone": "UTC"}}, SCHEDULE), ({"instance_schedule_policy": {}}, SCHEDULE), ({"group_placement_policy": {"vm_count": 2}}, PLACEMENT),
     ({"workload_policy": {"type_": "HIGH_THROUGHPUT"}}, PLACEMENT), ({"snapshot_schedule_policy": {}}, OTHER)],
)  # fmt: skip
def test_kinds_of_resource_policies(fields: dict[str, Any], kind: str) -> None:
    assert policy_kind(compute_v1.ResourcePolicy.pb(compute_v1.ResourcePolicy(name="p", **fields))) == kind


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_it_is_called_by_its_number_and_labels_are_its_tags() -> None:
    found = parsed(labels={"team": "ml"})

    assert str(found.id).startswith(f"gcp:{PROJECT}:{ZONE}:instance:5000")
    assert (found.name, found.tags, found.type) == ("trainer", {"team": "ml"}, "n1-standard-8")


def test_a_machine_without_a_number_is_none() -> None:
    with pytest.raises(ValueError, match="without an id"):
        parse_instance(compute_v1.Instance.pb(compute_v1.Instance(name="m")), project=PROJECT, zone=ZONE, types={}, policies={})


def test_a_machine_of_which_nothing_else_is_told_has_nothing_known() -> None:
    found = parse_instance(compute_v1.Instance.pb(compute_v1.Instance(id=7)), project=PROJECT, zone=ZONE, types={}, policies={})

    assert found == Instance(id=found.id, type="unknown", state=InstanceState.UNKNOWN, zone=ZONE)


def test_a_number_of_sixty_four_bits_survives() -> None:
    found = parse_instance(compute_v1.Instance.pb(compute_v1.Instance(id=2**64 - 1)), project=PROJECT, zone=ZONE, types={}, policies={})

    assert found.id.native == "18446744073709551615"


def test_every_private_address_of_a_machine_on_google_is_told() -> None:
    nics = [{"networkIP": "10.0.0.4"}, {"networkIP": "10.1.0.4", "ipv6Address": "fd20::4"}]

    assert parsed(networkInterfaces=nics).private_addresses == ("10.0.0.4", "10.1.0.4", "fd20::4")
    assert parsed(without=("networkInterfaces",)).private_addresses is None
