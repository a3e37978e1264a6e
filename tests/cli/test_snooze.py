"""`reaper snooze`: ends, caps, and what the answer shows."""

import getpass
from datetime import timedelta

import pytest

from tests import builders as make
from tests.builders import DAY, HOUR, NOW
from tests.cli.conftest import Room


def until(room: Room) -> list[timedelta]:
    with room.store() as store:
        return [s.until - NOW for s in store.snoozes(NOW)]


def test_it_is_kept_for_the_span_and_the_answer_shows_both_clocks_and_the_cap(room: Room) -> None:
    room.machine()
    room.list_all()
    answer = room.reaper("snooze", "trainer", "--for", "4h", "--reason", "debugging")

    assert answer.code == 0
    assert f"trainer ({make.resource()}) is kept until 2026-03-04 " in answer.out
    assert "(2026-03-04 16:00:00 UTC), for 4h" in answer.out
    assert "at most 2d from now may be asked for (policy exploration)" in answer.out
    assert until(room) == [4 * HOUR]
    with room.store() as store:
        (entry,) = store.audit()
    assert (entry.kind, entry.actor, entry.because) == ("snoozed", getpass.getuser(), "debugging")


def test_until_takes_a_time_with_its_zone(room: Room) -> None:
    room.machine()
    room.list_all()
    told = room.reaper("snooze", "i-01", "--until", "2026-03-04T18:00+01:00", "--reason", "x", "--who", "ada", "--json").json

    assert told["until"] == "2026-03-04T17:00:00Z"
    assert (told["capped"], told["seen"]) == (False, True)


def test_the_policys_cap_binds_and_is_said(room: Room) -> None:
    room.machine()
    room.list_all()
    answer = room.reaper("snooze", "trainer", "--for", "30d", "--reason", "x")

    assert answer.code == 0
    assert "what you asked for was longer and ends there" in answer.out
    assert until(room) == [2 * DAY]


def test_without_a_policy_or_a_readable_configuration_five_days_are_the_cap(room: Room) -> None:
    room.cloud.put(make.instance("i-02", name="stray"))
    room.list_all()
    first = room.reaper("snooze", "stray", "--for", "30d", "--reason", "x", "--json")
    room.configure("nonsense")
    second = room.reaper("snooze", "stray", "--for", "30d", "--reason", "x", "--json")

    assert (first.code, second.code) == (0, 0)
    assert (first.json["cap_s"], second.json["cap_s"]) == (5 * 86400, 5 * 86400)


def test_a_shorter_one_does_not_shorten_and_says_so(room: Room) -> None:
    room.machine()
    room.list_all()
    room.reaper("snooze", "trainer", "--for", "8h", "--reason", "x")
    answer = room.reaper("snooze", "trainer", "--for", "1h", "--reason", "x")

    assert "(2026-03-04 20:00:00 UTC), for 8h" in answer.out
    assert "the latest end counts" in answer.out


def test_a_snoozed_machine_is_held(room: Room) -> None:
    room.due()
    room.reaper("snooze", "trainer", "--for", "4h", "--reason", "debugging")

    assert room.reaper("plan", "--json").json["actions"] == []


def test_a_machine_never_seen_needs_its_whole_id(room: Room) -> None:
    room.list_all()
    whole = "aws:111122223333:eu-west-1:instance:i-0new"
    refused = room.reaper("snooze", "i-0new", "--for", "4h", "--reason", "x", "--json")
    kept = room.reaper("snooze", whole, "--for", "4h", "--reason", "x")

    assert refused.code == 4
    assert refused.json["kind"] == "Refused"
    assert kept.code == 0
    assert "never listed and never reported" in kept.out


def test_an_ambiguous_name_is_a_usage_error_and_keeps_nothing(room: Room) -> None:
    room.machine("i-01", "twin")
    room.machine("i-02", "twin")
    room.list_all()

    assert room.reaper("snooze", "twin", "--for", "4h", "--reason", "x").code == 2
    assert until(room) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--for", "4", "--reason", "x"], "has no unit; write it as 30m", id="no unit"),
        pytest.param(["--for", "-4h", "--reason", "x"], "expected one argument", id="negative"),
        pytest.param(["--for=-4h", "--reason", "x"], "is negative", id="negative, insisted"),
        pytest.param(["--for", "0h", "--reason", "x"], "is no time at all", id="nothing"),
        pytest.param(["--until", "tomorrow", "--reason", "x"], "is not a time", id="a word"),
        pytest.param(["--until", "2020-01-01", "--reason", "x"], "is past", id="past"),
        pytest.param(["--for", "4h"], "the following arguments are required: --reason", id="no reason"),
        pytest.param(["--for", "4h", "--reason", " \x07"], "--reason is blank", id="a reason of nothing"),
        pytest.param(["--reason", "x"], "one of the arguments --for --until is required", id="no end"),
        pytest.param(["--for", "4h", "--until", "2027-01-01", "--reason", "x"], "not allowed with argument", id="two ends"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error_and_keeps_nothing(room: Room, words: list[str], said: str) -> None:
    room.machine()
    room.list_all()
    answer = room.reaper("snooze", "trainer", *words)

    assert answer.code == 2
    assert said in answer.err
    assert until(room) == []
