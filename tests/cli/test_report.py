"""`reaper report waste`: what costs money and does no work, the dearest first, and never a price that is not known as zero."""

import csv
import io
from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.decide.shelves import EVERY
from reaper.errors import Denied
from reaper.model.kinds.disk import Attachment, Disk, DiskState, Leftover
from reaper.model.resource import ResourceId
from reaper.ports import Shelf
from reaper.service.shelves import ShelfWatch
from tests import builders as make
from tests.builders import DAY, HERE, HOUR, NOW
from tests.cli.conftest import ENFORCING, Room


def disk(native: str, usd: float | None, **changes: object) -> Disk:
    id = ResourceId("aws", HERE.account, HERE.name, "disk", native)
    made = Disk(id, DiskState.AVAILABLE, size_gib=500, type="gp3", tags={"owner": "ada", "project": "llm"}, created_at=NOW - 100 * DAY, monthly_usd=usd)
    return replace(made, **changes)  # type: ignore[arg-type]


def snapshot(native: str, usd: float | None, **changes: object) -> Leftover:
    id = ResourceId("aws", HERE.account, HERE.name, "snapshot", native)
    return replace(Leftover(id, "snapshot", "its disk is gone", size_gib=80, created_at=NOW - 30 * DAY, monthly_usd=usd), **changes)  # type: ignore[arg-type]


@pytest.fixture
def full(room: Room) -> Room:
    used = disk("vol-used", 99.0, state=DiskState.IN_USE, attachments=(Attachment("i-01"),))
    room.cloud.shelved = [
        Shelf(HERE, (disk("vol-small", 4.0, name="=cmd()|x"), disk("vol-big", 40.0, name="datasets"), disk("vol-odd", None, tags={}), used), (snapshot("snap-1", 4.5),))
    ]
    return room


def test_what_lies_about_is_listed_with_owner_age_and_dollars_the_dearest_first(full: Room) -> None:
    answer = full.reaper("report", "waste")
    lines = answer.out.splitlines()

    assert answer.code == 0
    assert [word for line in lines for word in ("vol-big", "snap-1", "vol-small", "vol-odd") if word in line] == ["vol-big", "snap-1", "vol-small", "vol-odd"]
    assert "vol-used" not in answer.out
    assert "$40.00" in lines[1]
    assert "ada" in lines[1]
    assert lines[-1] == "$48.50 a month lie about, beside 1 without a price; nothing of it is touched by this report"


def test_how_long_a_disk_has_been_unattached_is_what_was_seen_of_it(full: Room) -> None:
    with full.store() as store:
        watch = ShelfWatch(store, (full.cloud,), full.clock)
        for _ in range(9):
            watch.look()
            full.clock.advance(EVERY)
    found = full.reaper("report", "waste", "--json").json["items"]
    ages = {item["resource"].rpartition(":")[2]: (item["age_days"], item["made_days_ago"]) for item in found}

    assert ages["vol-big"] == (round(9 * EVERY / DAY, 2), round(100 + 9 * EVERY / DAY, 2))
    assert ages["snap-1"][0] is None


def test_machines_that_idle_behind_a_guard_and_those_without_an_agent_stand_in_it(full: Room) -> None:
    full.due()
    full.machine("i-silent", "mystery")
    full.configure(ENFORCING + '[protect.paper]\ntags = { team = ["ml"] }\nreason = "deadline"\n')
    found = {(item["what"], item["name"]): item for item in full.reaper("report", "waste", "--json").json["items"]}

    assert found["no agent", "mystery"]["usd_per_month"] == 1095.0
    assert found["exemption without end", "paper"]["usd_per_month"] == 2190.0
    assert "2 running machines: deadline" in found["exemption without end", "paper"]["because"]


def test_a_policy_that_could_not_act_is_named_with_the_guard_that_held_it(room: Room) -> None:
    room.due()
    room.machine("i-01", launched_at=NOW - timedelta(minutes=2))
    found = [item for item in room.reaper("report", "waste", "--json").json["items"] if item["what"] == "held back"]

    assert [(item["name"], item["acted_on"]) for item in found] == [("exploration", True)]
    assert found[0]["because"].startswith("too-young holds trainer")


def test_one_owners_things_are_hers_alone(full: Room) -> None:
    found = full.reaper("report", "waste", "--owner", "ada", "--json").json["items"]

    assert {item["owner"] for item in found} == {"ada"}
    assert full.reaper("report", "waste", "--owner", "nobody").code == 3


def test_a_price_that_is_not_known_is_not_told_as_nothing(room: Room) -> None:
    room.cloud.shelved = [Shelf(HERE, (disk("vol-odd", None),))]

    assert "what it costs is not known of 1 that lie about" in room.reaper("report", "waste").out


def test_values_for_a_spreadsheet_hold_no_formula(full: Room) -> None:
    rows = list(csv.DictReader(io.StringIO(full.reaper("report", "waste", "--csv").out)))

    assert rows[0]["usd_per_month"] == "40.0"
    assert [row["name"] for row in rows if row["resource"].endswith("vol-small")] == ["'=cmd()|x"]
    assert rows[-1]["usd_per_month"] == ""


def test_what_could_not_be_read_is_said_and_what_was_known_of_it_stands(full: Room) -> None:
    with full.store() as store:
        ShelfWatch(store, (full.cloud,), full.clock).look()
    full.clock.advance(HOUR)
    full.cloud.shelved = [Shelf(HERE, failed="throttled"), Shelf(make.HERE.__class__("aws", "1", "x"), unread=("snapshots of aws:1:x: not allowed",))]
    answer = full.reaper("report", "waste")

    assert "vol-big" in answer.out
    assert "not read: aws:111122223333:eu-west-1: throttled; its disks are as of 1h ago" in answer.out
    assert "not read: snapshots of aws:1:x: not allowed" in answer.out


def test_where_nothing_can_be_read_the_report_fails(room: Room) -> None:
    for method in ("list", "shelves"):
        room.cloud.fail(method, Denied("no credentials", "x"), times=9)
    answer = room.reaper("report", "waste", "--json")

    assert answer.code == 1
    assert any("no credentials" in why for why in answer.json["unread"])


def test_nothing_found_is_said_and_two_ways_to_say_it_are_refused(room: Room) -> None:
    assert room.reaper("report", "waste").code == 3
    assert room.reaper("report", "waste", "--csv", "--json").code == 2
    assert room.cloud.verbs() == []
