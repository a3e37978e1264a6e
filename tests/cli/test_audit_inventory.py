"""`reaper audit` and `reaper inventory`."""

import re

import pytest

from reaper.errors import Denied
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import InstanceState
from tests import builders as make
from tests.builders import HERE, HOUR, NOW
from tests.cli.conftest import Room


def record(room: Room, *entries: AuditEntry) -> None:
    with room.store() as store:
        store.append_audit(*entries)


def line(because: str, ago: int = 0, native: str | None = "i-01") -> AuditEntry:
    resource = make.resource(native) if native is not None else None
    return AuditEntry(NOW - ago * HOUR, AuditKind.WARNED, "reaper", because, resource, "stop", evidence={"via": "log", "empty": ""})


def test_the_newest_come_last_with_number_attempt_and_evidence(room: Room) -> None:
    record(room, line("first", 2), line("second", 1))
    answer = room.reaper("audit")

    assert answer.code == 0
    rows = [r for r in answer.out.splitlines() if "warned" in r]
    assert re.match(rf"1 +2026-03-04 10:00:00 +warned  stop +{make.resource()} +reaper +first  \(via log\)", rows[0])
    assert "second" in rows[1]


def test_filters_by_machine_time_and_number(room: Room) -> None:
    room.machine()
    room.list_all()
    record(room, line("old", 30), line("other", 1, "i-02"), line("mine", 1), line("newest", 0))

    def told(*words: str) -> list[str]:
        return [e["because"] for e in room.reaper("audit", "--json", *words).json["entries"]]

    assert told() == ["old", "other", "mine", "newest"]
    assert told("--resource", "trainer") == ["old", "mine", "newest"]
    assert told("--since", "24h") == ["other", "mine", "newest"]
    assert told("--since", "2026-03-04T11:30+00:00") == ["newest"]
    assert told("--limit", "1") == ["newest"]


def test_an_empty_record_is_nothing_to_do(room: Room) -> None:
    room.list_all()
    answer = room.reaper("audit")

    assert (answer.code, answer.out) == (3, "there is nothing in the record yet\n")


@pytest.mark.parametrize("words", [["--since", "yesterday"], ["--limit", "0"], ["--limit", "-5"], ["--limit", "many"]])
def test_filters_that_cannot_be_read_are_usage_errors(room: Room, words: list[str]) -> None:
    room.list_all()

    assert room.reaper("audit", *words).code == 2


def test_a_persons_words_in_the_record_stay_words(room: Room) -> None:
    record(room, line("[link=x]\x1b]8;;evil\x07 reason"))
    answer = room.reaper("audit")

    assert "[link=x]]8;;evil reason" in answer.out
    assert "\x1b" not in answer.out


# --- inventory --------------------------------------------------------------------------------------------------------


def test_the_inventory_shows_owner_policy_and_agent_without_asking_a_cloud(room: Room) -> None:
    room.machine()
    room.cloud.put(make.instance("i-02", name=None, tags={}, state=InstanceState.STOPPED, gpus=None))
    room.list_all()
    room.report()
    room.cloud.calls.clear()
    answer, told = room.reaper("inventory"), room.reaper("inventory", "--json").json

    assert answer.code == 0
    assert re.search(rf"trainer  {make.resource()} .* running +ada +exploration +1.0  report 20s ago", answer.out)
    assert re.search(rf"{make.resource('i-02')} .* GPUs not known +stopped +- +- +none", answer.out)
    assert [m["agent"] and m["agent"]["version"] for m in told["machines"]] == ["1.0", None]
    assert room.cloud.calls == []


def test_refresh_lists_first_and_tells_failed_places_with_their_age(room: Room) -> None:
    room.machine()
    room.list_all()
    room.machine("i-02", "newcomer")
    fresh = room.reaper("inventory", "--refresh")
    room.cloud.failed_places[HERE] = "throttled"
    room.clock.advance(HOUR)
    failed = room.reaper("inventory", "--refresh", "--json")

    assert "newcomer" in fresh.out
    assert failed.code == 1
    assert [(p["place"], p["because"], p["age_s"]) for p in failed.json["failed_places"]] == [(str(HERE), "throttled", 3600)]
    assert len(failed.json["machines"]) == 2


def test_refresh_leaves_listing_to_a_reaper_that_runs(room: Room) -> None:
    room.machine()
    room.list_all()
    room.led_by_another()
    room.cloud.calls.clear()
    answer = room.reaper("inventory", "--refresh")

    assert answer.code == 0
    assert "a reaper is running" in answer.out
    assert room.cloud.calls == []


def test_refresh_without_credentials_says_what_is_missing(room: Room) -> None:
    room.cloud.fail("list", Denied("no usable AWS credentials"))
    answer = room.reaper("inventory", "--refresh")

    assert answer.code == 1
    assert "AWS_PROFILE" in answer.out


def test_an_empty_inventory_is_nothing_to_do(room: Room) -> None:
    room.list_all()

    assert room.reaper("inventory").code == 3
