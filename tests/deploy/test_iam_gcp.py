"""The shipped roles for Google Cloud are those that the calls need: no more, no less, and enough."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reaper.clouds.gcp.cloud import NEEDS
from reaper.clouds.gcp.permissions import ACTOR, EVERYTHING, FOLDERS, READER, SNAPSHOTS, TERMINATE, permissions
from reaper.clouds.gcp.roles import main
from reaper.demo.compute_server import ComputeServer
from reaper.errors import CloudError, Denied
from tests.clouds.gce import adapter, gid
from tests.fakes.discovery import Discovery
from tests.fakes.gce import PROJECT, ZONE, compute_server

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "iam" / "gcp"
NIGHTS = {"instanceSchedulePolicy": {"timeZone": "UTC"}}


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def granted(role: str) -> set[str]:
    return set(re.findall(r"^  - (\S+)$", (FOLDER / f"{role}.yaml").read_text(), re.M))


KEY = "projects/keys/locations/us/keyRings/r/cryptoKeys/k"
TAGS = {"idle-reaper:attempt": "a-1"}


def use_all(server: ComputeServer) -> None:
    """Everything that the adapter ever does."""
    policy = server.world.add_policy("nights", PROJECT, "us-central1", **NIGHTS)
    made = server.world.launch("m", PROJECT, ZONE, resourcePolicies=[policy])
    address = {"name": "nic0", "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT", "natIP": "203.0.113.7"}]}
    regional = {**made["disks"][0], "boot": False, "source": made["disks"][0]["source"].replace(f"zones/{ZONE}", "regions/us-central1").replace("disks/m", "disks/two")}
    server.beside.keys[KEY] = "ENABLED"
    plain = server.world.launch(
        "plain", PROJECT, ZONE, "e2-standard-8", networkInterfaces=[address],
        disks=[{**made["disks"][0], "source": made["disks"][0]["source"].replace("disks/m", "disks/plain"), "diskEncryptionKey": {"kmsKeyName": KEY}}, regional],
    )  # fmt: skip
    server.beside.add_project(PROJECT, server.beside.add_folder("2", "folders/1"))
    resource, other = gid(made["id"]), gid(plain["id"])
    server.world.op_s = 0.02
    cloud = adapter(server, settings={"below": ("folders/1",), "price_list": True})
    cloud.list()
    cloud.shelves()
    for one in (resource, other):
        cloud.get(one)
        assert cloud.protections(one).stop_protected is False
    cloud.stop(resource)
    cloud.hibernate(other)
    server.world.settle(everything=True)
    cloud.start(resource)
    cloud.start(other)
    cloud.tag(resource, TAGS)
    for volume in cloud.get(other).volumes:
        cloud.snapshot(other, volume, TAGS)
    cloud.snapshots(other, "a-1")
    cloud.terminate(other)
    cloud._prices.learn(PROJECT, wait=True)


def test_the_shipped_files_are_what_the_command_writes(tmp_path: Path) -> None:
    main([str(tmp_path)])

    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert {name: (FOLDER / name).read_text() for name in made} == made


def test_every_call_that_arrives_is_declared_and_every_declaration_is_called(server: ComputeServer) -> None:
    use_all(server)

    assert set(server.methods()) == {need.method for need in NEEDS}


OTHERWISE = {
    "compute.snapshots.insert": {"compute.snapshots.create", "compute.disks.createSnapshot", "compute.snapshots.setLabels"},
    "compute.regionDisks.get": {"compute.disks.get"}, "compute.regionCommitments.aggregatedList": {"compute.commitments.list"},
    "cloudbilling.services.skus.list": {""}, "cloudkms.projects.locations.keyRings.cryptoKeys.get": {"cloudkms.cryptoKeys.get"},
    "cloudresourcemanager.projects.list": {"resourcemanager.projects.list"}, "cloudresourcemanager.folders.list": {"resourcemanager.folders.list"},
}  # fmt: skip
"""Calls whose permission is called another thing. https://cloud.google.com/iam/docs/permissions-reference"""


def test_permissions_and_methods_belong_together() -> None:
    for need in NEEDS:
        kind, verb = need.method.split(".")[1:3]
        assert need.permission in OTHERWISE.get(need.method, {f"compute.{kind}.{'list' if verb == 'aggregatedList' else verb}"})
        assert need.why


def test_each_role_holds_what_its_name_says_and_only_one_can_delete() -> None:
    assert all(permission.endswith((".list", ".get")) for role in (READER, FOLDERS) for permission in granted(role))
    assert granted(ACTOR) == {f"compute.instances.{verb}" for verb in ("stop", "suspend", "start", "resume", "setLabels")}
    assert granted(TERMINATE) == {"compute.instances.delete"}
    assert not any(permission.endswith("delete") for role in (READER, ACTOR, SNAPSHOTS, FOLDERS) for permission in granted(role))
    for role in EVERYTHING:
        assert granted(role) == set(permissions(NEEDS, role))


def methods_of(*roles: str) -> set[str]:
    """Those whose every permission is granted; the one that needs none."""
    has = set().union(*map(granted, roles)) | {""}
    return {need.method for need in NEEDS} - {need.method for need in NEEDS if need.permission not in has}


def refuse_all_but(server: ComputeServer, allowed: set[str]) -> None:
    for need in NEEDS:
        if need.method not in allowed:
            server.fail(need.method, 403, "forbidden", times=float("inf"))


def test_the_roles_together_are_enough_for_everything(server: ComputeServer) -> None:
    refuse_all_but(server, methods_of(*EVERYTHING))

    use_all(server)


def test_the_reader_alone_sees_everything_and_can_do_nothing(server: ComputeServer) -> None:
    refuse_all_but(server, methods_of(READER))
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    cloud = adapter(server)

    assert [one.failed for one in cloud.list()] == [None, None]
    with pytest.raises(Denied, match="deploy/iam/gcp"):
        cloud.stop(resource)
    assert server.world.machine(resource.native)["status"] == "RUNNING"


@pytest.mark.parametrize("need", [need for need in NEEDS if need.role == READER and need.method.endswith(("instances.aggregatedList", "instances.get"))], ids=lambda need: need.method)
def test_without_one_of_the_reads_that_matter_it_says_so(server: ComputeServer, need: object) -> None:
    method = need.method  # type: ignore[attr-defined]
    server.fail(method, 403, "forbidden", times=float("inf"))
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    cloud = adapter(server)

    if method.endswith("aggregatedList"):
        assert all("forbidden" in (one.failed or "") for one in cloud.list())
    else:
        with pytest.raises(CloudError, match="forbidden"):
            cloud.get(resource)


def test_the_methods_are_googles_own() -> None:
    known = Discovery()
    assert all(known.knows(need.method) for need in NEEDS)
    assert not known.knows("compute.instances.hibernate")


def test_terraform_is_formatted_and_names_only_what_is_there() -> None:
    text = (FOLDER / "main.tf").read_text()
    assert set(re.findall(r"local\.(\w+)", text)) == {f"{role}_permissions" for role in EVERYTHING}
    variables = set(re.findall(r'^variable "(\w+)"', text, re.M))
    assert set(re.findall(r"\bvar\.(\w+)", text)) == variables
    terraform = shutil.which("terraform")
    if terraform is None:
        pytest.skip("needs the Terraform provider or at least its program, terraform")
    done = subprocess.run([terraform, "fmt", "-check", "-diff", str(FOLDER)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
