"""Projects below folders and organisations: found where we may look, kept where we may not any more."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from reaper.clouds.gcp.cloud import GcpCloud
from reaper.demo.compute_server import ComputeServer
from reaper.errors import NotFound, Unreachable
from reaper.model.resource import Place
from reaper.ports import Clock, Listed
from tests.clouds.gce import adapter, gid
from tests.fakes.clock import ManualClock
from tests.fakes.gce import ZONE, compute_server

LIST, FOLDERS, PROJECTS = "compute.instances.aggregatedList", "cloudresourcemanager.folders.list", "cloudresourcemanager.projects.list"
TOP = "folders/1"
NEVER = float("inf")


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        for project in ("near", "deep", "going", "gone", "mine"):
            made.world.zones[project] = (ZONE,)
        made.beside.add_project("near", TOP)
        made.beside.add_project("going", TOP, "DELETE_REQUESTED")
        made.beside.add_project("deep", made.beside.add_folder("3", made.beside.add_folder("2", TOP)))
        made.beside.add_project("gone", made.beside.add_folder("4", TOP, "DELETE_REQUESTED"))
        yield made


def below(server: ComputeServer, *written: str, clock: Clock | None = None, parents: tuple[str, ...] = (TOP,)) -> GcpCloud:
    return adapter(server, settings={"projects": written, "below": parents}, **({} if clock is None else {"clock": clock}))


def listed(cloud: GcpCloud) -> dict[str, Listed]:
    return {one.place.account: one for one in cloud.list()}


def test_projects_of_folders_in_folders_are_watched_and_those_on_their_way_out_are_not(server: ComputeServer) -> None:
    assert set(listed(below(server, "mine"))) == {"near", "deep", "mine"}


def test_every_page_of_a_folder_is_read(server: ComputeServer) -> None:
    for number in range(5):
        server.beside.add_project(f"more-{number}", TOP)
        server.world.zones[f"more-{number}"] = (ZONE,)
    server.beside.page = 2

    assert {f"more-{number}" for number in range(5)} <= set(listed(below(server)))


def test_an_organisation_is_searched_like_a_folder(server: ComputeServer) -> None:
    server.beside.add_project("mine", "organizations/9")

    assert set(listed(below(server, parents=("organizations/9",)))) == {"mine"}


def test_a_machine_of_a_found_project_is_read_and_one_of_another_is_not(server: ComputeServer) -> None:
    found = gid(server.world.launch("m", "deep", ZONE)["id"], project="deep")
    other = gid(server.world.launch("m", "going", ZONE)["id"], project="going")
    cloud = below(server)
    cloud.list()

    assert cloud.get(found).id == found
    with pytest.raises(NotFound, match=r"clouds\.gcp\.projects"):
        cloud.get(other)


def test_a_folder_that_may_not_be_read_is_said_and_hides_no_other(server: ComputeServer) -> None:
    server.beside.closed.add("folders/2")

    found = listed(below(server, "mine"))

    assert set(found) == {"near", "mine", "folders/2"}
    assert found["folders/2"].place == Place("gcp", "folders/2", "?")
    assert "forbidden" in (found["folders/2"].failed or "")
    assert found["near"].failed is None


def test_what_was_found_below_a_folder_stays_while_it_cannot_be_read(server: ComputeServer) -> None:
    clock = ManualClock(datetime.now(UTC))
    cloud = below(server, clock=clock)
    cloud.list()
    server.beside.closed.add(TOP)
    clock.advance(timedelta(minutes=16))

    found = listed(cloud)

    assert set(found) == {"near", "deep", TOP}
    assert found["deep"].failed is None


def test_a_project_that_left_the_folder_is_not_watched_any_more_and_a_new_one_is(server: ComputeServer) -> None:
    clock = ManualClock(datetime.now(UTC))
    cloud = below(server, clock=clock)
    cloud.list()
    server.beside.projects[TOP] = []
    server.beside.add_project("mine", TOP)
    before = set(listed(cloud))
    clock.advance(timedelta(minutes=16))

    assert (before, set(listed(cloud))) == ({"near", "deep"}, {"deep", "mine"})


def test_folders_are_searched_every_quarter_of_an_hour_and_not_in_every_listing(server: ComputeServer) -> None:
    cloud = below(server)

    for _ in range(4):
        cloud.list()

    assert (server.methods().count(PROJECTS), server.methods().count(FOLDERS)) == (3, 3)


def test_a_project_without_the_api_is_left_out_and_is_no_failure(server: ComputeServer) -> None:
    server.world.off.add("deep")
    cloud = below(server)

    for _ in range(2):
        found = listed(cloud)

    assert found["deep"].failed is None
    assert "not switched on" in (found["deep"].skipped or "")
    assert found["near"].failed is None


@pytest.mark.parametrize("token", ["again", None])
def test_a_listing_of_folders_that_does_not_end_is_given_up(server: ComputeServer, token: str | None) -> None:
    turns = iter(range(10**9))
    server.beside._paged = lambda word, rows, query: {word: rows, "nextPageToken": token or str(next(turns))}  # type: ignore[method-assign]

    found = listed(below(server, "mine"))

    assert set(found) == {"mine", TOP}
    assert "the listing" in (found[TOP].failed or "")


def test_folders_that_lie_in_each_other_are_searched_once(server: ComputeServer) -> None:
    server.beside.add_folder("1", "folders/3")

    assert set(listed(below(server))) == {"near", "deep"}


def test_a_machine_below_a_folder_that_could_not_be_read_yet_is_not_known_and_not_gone(server: ComputeServer) -> None:
    """After a restart with an unreadable folder: "not found" would close what we began on it as if it had been deleted."""
    machine = gid(server.world.launch("m", "near", ZONE)["id"], project="near")
    server.beside.closed.add(TOP)
    cloud = below(server)
    for _ in range(2):
        with pytest.raises(Unreachable, match=r"not every folder"):
            cloud.get(machine)
        cloud.list()


def test_more_folders_than_are_searched_is_a_failure_and_not_silence(server: ComputeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reaper.clouds.gcp.below.MOST_FOLDERS", 2)

    found = listed(below(server))

    assert "more than 2 folders" in (found[TOP].failed or "")
    assert found["near"].failed is None
