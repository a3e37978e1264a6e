"""`reaper check --permissions` on Google: each permission on each project, by the one question that does nothing."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reaper.clock import SystemClock
from reaper.clouds.gcp.cloud import NEEDS
from reaper.clouds.gcp.pace import Pace
from reaper.clouds.gcp.permissions import ACTOR, EVERYTHING, FOLDERS, READER, SNAPSHOTS, TERMINATE, permissions
from reaper.clouds.gcp.probe import GcpProber
from reaper.demo.compute_server import ComputeServer
from reaper.model import policy
from reaper.ports import Probed
from tests.clouds.gce import FAST
from tests.fakes.gce import PROJECT, compute_server

TEST = "cloudresourcemanager.projects.testIamPermissions"
SETTINGS = policy.GcpCloud((PROJECT,), price_list=False)
WHOLE = policy.Configuration("ml", policy.Mode.ENFORCE, (), scope=policy.Scope(verbs=("stop", "start", "snapshot", "terminate"), given=True))


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


def probed(server: ComputeServer, configuration: policy.Configuration = WHOLE, settings: policy.GcpCloud = SETTINGS) -> tuple[Probed, ...]:
    clock = SystemClock()
    made = GcpProber(replace(settings, endpoint=server.url), clock=clock, bounds=FAST, pace=Pace(clock, per_s=1000, burst=1000))
    return made.probe(configuration)


def test_every_permission_that_is_declared_is_asked_about_or_said_not_to_be(server: ComputeServer) -> None:
    found = probed(server)

    assert {one.permission for one in found} == {name for role in EVERYTHING if role != FOLDERS for name in permissions(NEEDS, role)}
    assert {one.account for one in found} == {PROJECT}
    assert {one.permission for one in found if one.allowed is None} == {"cloudkms.cryptoKeys.get"}
    assert all(one.allowed for one in found if one.allowed is not None)


def test_what_is_denied_says_what_is_lost_by_it(server: ComputeServer) -> None:
    server.beside.granted = set(permissions(NEEDS, READER))

    denied = {one.permission: one for one in probed(server) if one.allowed is False}

    assert set(denied) == {name for role in (ACTOR, SNAPSHOTS, TERMINATE) for name in permissions(NEEDS, role)}
    assert "nothing can be stopped" in denied["compute.instances.stop"].because


@pytest.mark.parametrize(
    ("verbs", "roles"), [((), {READER}), (("stop",), {READER, ACTOR}), (("stop", "start", "snapshot"), {READER, ACTOR, SNAPSHOTS})], ids=["none", "stop", "snapshot"]
)
def test_only_what_the_verbs_need_is_asked_about(server: ComputeServer, verbs: tuple[str, ...], roles: set[str]) -> None:
    configuration = replace(WHOLE, scope=replace(WHOLE.scope, verbs=verbs))

    assert {one.document for one in probed(server, configuration)} == roles


def test_a_project_that_cannot_be_asked_is_not_known_and_hides_no_other(server: ComputeServer) -> None:
    server.fail(TEST, 403, "forbidden", times=99)

    found = probed(server)

    assert found
    assert all(one.allowed is None and "forbidden" in one.because for one in found if not one.permission.startswith("cloudkms"))


def test_projects_below_a_folder_are_asked_and_the_folder_itself(server: ComputeServer) -> None:
    server.beside.add_project("ml-eval", "folders/1")
    server.beside.closed.add(server.beside.add_folder("2", "folders/1"))

    found = probed(server, settings=replace(SETTINGS, below=("folders/1",)))

    assert {one.account for one in found} == {PROJECT, "ml-eval", "folders/1", "folders/2"}
    assert {one.permission for one in found if one.account == "folders/1"} == set(permissions(NEEDS, FOLDERS))
    assert [one.allowed for one in found if one.account == "folders/2"] == [None]


@pytest.mark.parametrize(("status", "allowed"), [(None, True), (403, None)], ids=["read", "refused"])
def test_the_price_list_is_tried_by_reading_a_line_of_it(server: ComputeServer, status: int | None, allowed: bool | None) -> None:
    if status is not None:
        server.fail("cloudbilling.services.skus.list", status, "SERVICE_DISABLED", times=99)

    (told,) = [one for one in probed(server, settings=replace(SETTINGS, price_list=True)) if "price list" in one.permission]

    assert told.allowed is allowed


def test_probing_changes_nothing(server: ComputeServer) -> None:
    probed(server)

    assert server.mutations() == []
    assert set(server.methods()) == {TEST}
