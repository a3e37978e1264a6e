"""`reaper schedule`: a week of a schedule or of a machine, in its zone and in yours."""

import pytest

from tests.builders import stopped
from tests.cli.conftest import ENFORCING, Room

HOURS = """
[hours.office]
zone = "Europe/Berlin"
on = ["mon-fri 08:00-19:00"]
holidays = ["DE-BE"]
[hours.lab]
zone = "Asia/Kolkata"
on = ["mon-sun 09:30-18:00"]
only = "stop"
"""


@pytest.fixture
def office(room: Room) -> Room:
    """NOW is noon (UTC) on Wednesday, 4 March 2026."""
    room.configure(ENFORCING + 'hours = "office"\n' + HOURS)
    return room


def rows(room: Room, *words: str) -> list[tuple[str, str, str]]:
    return [(row["there"], row["here"], row["what"]) for row in room.reaper("schedule", *words, "--json").json["rows"]]


def test_a_week_is_shown_in_its_zone_and_in_yours(office: Room) -> None:
    told = rows(office, "office", "--days", "2", "--zone", "Asia/Tokyo")

    assert told == [
        ("Wed 2026-03-04 19:00 CET", "Thu 2026-03-05 03:00 JST", "off"),
        ("Thu 2026-03-05 08:00 CET", "Thu 2026-03-05 16:00 JST", "on"),
        ("Thu 2026-03-05 19:00 CET", "Fri 2026-03-06 03:00 JST", "off"),
        ("Fri 2026-03-06 08:00 CET", "Fri 2026-03-06 16:00 JST", "on"),
    ]


def test_holidays_and_the_change_of_the_clocks_are_marked(office: Room) -> None:
    answer = office.reaper("schedule", "office", "--from", "2027-03-25", "--days", "5")

    assert answer.code == 0
    assert "Good Friday: no hours begin on Fri 2027-03-26" in answer.out
    assert "Sun 2027-03-28 03:00 CEST" in answer.out
    assert "the clocks go forward by 1h in Europe/Berlin" in answer.out
    assert "people are warned from 18:30" in answer.out


def test_without_a_name_every_schedule_says_what_it_wants_now(office: Room) -> None:
    answer = office.reaper("schedule", "--zone", "UTC")

    assert "hours office want machines on until Wed 2026-03-04 19:00 CET (Wed 2026-03-04 18:00 UTC for you)" in answer.out
    assert 'hours lab want machines on until Wed 2026-03-04 18:00 IST (Wed 2026-03-04 12:30 UTC for you); only = "stop"' in answer.out
    assert [one["hours"] for one in office.reaper("schedule", "--json").json["schedules"]] == ["lab", "office"]


def test_a_machine_is_shown_under_the_schedule_of_its_tag_or_of_its_policy(office: Room) -> None:
    office.machine("i-01", "trainer")
    office.machine("i-02", "bench", tags={"reaper-hours": "lab"})
    office.list_all()

    assert office.reaper("schedule", "trainer", "--json").json["hours"] == "office"
    assert office.reaper("schedule", "bench", "--json").json["hours"] == "lab"
    assert "trainer" in office.reaper("schedule", "trainer").out.splitlines()[0]


def test_a_machine_that_waits_for_its_morning_says_when_it_is_started(office: Room) -> None:
    made = office.machine("i-01", "trainer")
    office.cloud.put(stopped(made))
    office.list_all()
    told = office.reaper("schedule", "trainer", "--json").json["machine"]

    assert (told["state"], told["start"]) == ("stopped", None)  # nothing of ours stopped it


@pytest.mark.parametrize(("tag", "words"), [("never", "neither its policy nor its tag"), ("offce", "'offce', which is no schedule")])
def test_a_machine_under_none_says_why(office: Room, tag: str, words: str) -> None:
    office.machine("i-01", "trainer", tags={"reaper-hours": tag})
    office.list_all()
    answer = office.reaper("schedule", "trainer")

    assert answer.code == 3
    assert words in answer.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("offce",), "is no schedule (lab, office)"), (("office", "--zone", "CET"), "--zone"), (("office", "--days", "0"), "out of range"),
        (("office", "--from", "tomorrow"), "is not a time"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(office: Room, words: tuple[str, ...], told: str) -> None:
    office.machine()
    office.list_all()
    answer = office.reaper("schedule", *words)

    assert answer.code == 2
    assert told in answer.err


def test_where_no_schedule_is_written_that_is_said(room: Room) -> None:
    answer = room.reaper("schedule")

    assert answer.code == 3
    assert "add [hours.NAME]" in answer.out


def test_a_tag_that_cannot_be_read_is_told_in_the_plan_and_in_why(office: Room) -> None:
    office.machine("i-01", "trainer", tags={"reaper-hours": "offce"})
    office.list_all()
    plan, why = office.reaper("plan"), office.reaper("why", "trainer")

    assert "note: trainer" in plan.out
    assert "'offce', which is no schedule (lab, office; or 'never')" in plan.out
    assert "'offce', which is no schedule" in why.out
