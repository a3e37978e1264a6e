"""Our own state as labels: Google's rules, everybody else's labels left as they are, and a conflict read again."""

from collections.abc import Iterator
from typing import Any

import pytest

from reaper.clouds.gcp.labels import LABEL_PREFIX, as_tags, label_key, label_value, with_ours
from reaper.demo.compute_server import ComputeServer
from reaper.errors import Refused, WrongState
from tests.clouds.gce import adapter, gid
from tests.fakes.gce import PROJECT, ZONE, compute_server

SET = "compute.instances.setLabels"
TAG = "idle-reaper:stopped-at"


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("a-1234", "a-1234"), ("", ""), ("2026-12-24", "2026-12-24"), ("2026-12-24T10:00:00+00:00", "1798106400"), ("2026-12-24T11:00:00+01:00", "1798106400"),
        ("ada@example.com", "sha-"), ("Ada", "sha-"), ("x" * 64, "sha-"), ("2026-12-24T10:00:00", "sha-"), ("\u00e4", "sha-"),
    ],
)  # fmt: skip
def test_a_value_is_one_that_google_takes(server: ComputeServer, value: str, label: str) -> None:
    made = label_value(value)
    mark = server.world.launch("m", PROJECT, ZONE)["labelFingerprint"]

    server.world.set_labels(PROJECT, ZONE, "m", {"labels": {label_key(TAG): made}, "labelFingerprint": mark}, {})  # refused otherwise

    assert made == label or (label == "sha-" and made.startswith(label) and len(made) == 20)
    assert made == label_value(value)


@pytest.mark.parametrize("key", ["team", "idle-reaper", "idle-reaper:Stopped", "idle-reaper:a.b", "idle-reaper:" + "x" * 60, "reaper"])
def test_a_key_that_is_not_ours_is_refused_and_nothing_is_sent(server: ComputeServer, key: str) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])

    with pytest.raises(Refused, match=str(resource)):
        adapter(server).tag(resource, {key: "x"})

    assert server.calls == []


def test_ours_come_and_go_and_everybody_elses_stay() -> None:
    theirs = {"team": "ml", "idle-reaper": "theirs"}
    after = with_ours(theirs, {TAG: "a-1"})

    assert after == {**theirs, f"{LABEL_PREFIX}stopped-at": "a-1"}
    assert as_tags(after) == {**theirs, TAG: "a-1"}
    assert with_ours(after, {TAG: None, "idle-reaper:never": None}) == theirs


def test_labels_are_written_once_and_read_back_as_tags(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, labels={"team": "ml"})["id"])
    cloud = adapter(server)

    for _ in range(2):
        cloud.tag(resource, {TAG: "2026-12-24T10:00:00+00:00"})

    assert cloud.get(resource).tags == {"team": "ml", TAG: "1798106400"}
    assert server.methods().count(SET) == 1


def conflicts(server: ComputeServer, native: str, times: int) -> None:
    """Somebody writes a label between our read and our write, so often."""
    original, left = server.world.set_labels, [times]

    def meanwhile(*arguments: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            body = server.world.machine(native)
            original(PROJECT, ZONE, native, {"labels": {**body["labels"], f"x{left[0]}": "y"}, "labelFingerprint": body["labelFingerprint"]}, {})
        return original(*arguments)

    server.world.set_labels = meanwhile  # type: ignore[method-assign]


def test_labels_that_changed_meanwhile_are_read_again_and_kept(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE, labels={"team": "ml"})["id"])
    conflicts(server, resource.native, times=1)
    cloud = adapter(server)

    cloud.tag(resource, {TAG: "a-1"})

    assert cloud.get(resource).tags == {"team": "ml", "x0": "y", TAG: "a-1"}
    assert server.methods().count(SET) == 2


def test_labels_that_change_all_the_time_are_given_up(server: ComputeServer) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    conflicts(server, resource.native, times=99)

    with pytest.raises(WrongState):
        adapter(server).tag(resource, {TAG: "a-1"})

    assert server.methods().count(SET) == 2
