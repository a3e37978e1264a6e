"""Schedules as an operator writes them: what is read, and what is refused with its path and remedy."""

from datetime import date, datetime, time, timedelta
from typing import Any

import pytest

import reaper.config
from reaper.config import hours as words
from reaper.config.values import Unreadable
from reaper.errors import ConfigurationError
from reaper.model.policy import Configuration, Hours
from reaper.model.schedule import Once, Weekly
from tests.config.documents import full

OFFICE = {"zone": "Europe/Berlin", "on": ["mon-fri 08:00-19:00"]}


def parsed(policy: dict[str, Any] | None = None, defaults: dict[str, Any] | None = None, **hours: Any) -> Configuration:
    document = {"schema": 1, "hours": hours, "policy": {"all": policy or {}}}
    return reaper.config.parse(document | ({"defaults": defaults} if defaults else {}), "fleet.toml")


def refused(policy: dict[str, Any] | None = None, **hours: Any) -> str:
    with pytest.raises(ConfigurationError) as wrong:
        parsed(policy, **hours)
    return "\n".join(wrong.value.problems)


def test_everything_that_can_be_written_is_read() -> None:
    night, office = reaper.config.parse(full(), "test").hours

    assert office.name == "office"
    assert [str(interval) for interval in office.schedule.on] == [*(f"{day} 08:00-19:00" for day in ("mon", "tue", "wed", "thu")), "fri 08:00-17:00"]
    assert (office.schedule.holidays, office.schedule.days_off) == (("DE-BE",), (date(2026, 12, 24),))
    assert [str(one) for one in (*office.schedule.also_on, *office.schedule.also_off)] == ["2026-12-05 09:00-17:00", "2026-12-28 00:00 to 2026-12-31 00:00"]
    assert (office.wait, office.quiet, office.idle_for, office.held_for) == (timedelta(minutes=30), "ignore", timedelta(minutes=15), timedelta(hours=1))
    assert (office.if_busy, office.no_agent, office.start_also, office.start_order) == ("hold", "warn-and-stop", True, "rank")
    assert night.schedule.on == (Weekly(4, time(22), 1, time(6)),)
    assert (night.schedule.stops, night.schedule.starts, night.held_for) == (True, False, night.idle_for)


def test_a_holiday_is_one_in_its_own_region_and_has_a_name() -> None:
    berlin, bavaria = parsed(a=OFFICE | {"holidays": ["DE-BE"]}, b=OFFICE | {"holidays": ["DE-BY"]}).hours

    assert berlin.schedule.off_because(date(2027, 3, 8)) is not None  # Women's Day
    assert bavaria.schedule.off_because(date(2027, 3, 8)) is None
    assert bavaria.schedule.off_because(date(2047, 1, 6)) is not None
    assert berlin.schedule.off_because(date(2027, 4, 7)) is None


def test_a_policy_names_its_schedule_or_inherits_it_and_never_lifts_it() -> None:
    def under(policy: dict[str, Any], **defaults: Any) -> Hours | None:
        return parsed(policy, defaults or None, office=OFFICE, lab=OFFICE | {"zone": "Asia/Kolkata"}).policies[0].hours

    assert under({}) is None
    assert (under({"hours": "lab"}, hours="office") or pytest.fail("no hours")).name == "lab"
    assert (under({}, hours="office") or pytest.fail("no hours")).name == "office"
    assert under({"hours": "never"}, hours="office") is None


def test_a_changed_schedule_changes_the_digest_of_the_policies_under_it_and_the_order_of_lines_changes_nothing() -> None:
    def digests(**changes: Any) -> tuple[str, str, str]:
        got = parsed({"hours": "office"}, office=OFFICE | changes)
        return got.policies[0].digest, got.hours[0].digest, got.digest

    before = digests(on=["mon 08:00-19:00", "tue 08:00-19:00"])

    assert digests(on=["tue 08:00-19:00", "mon 08:00-19:00"]) == before
    assert digests(on=["mon,tue 08:00-19:00"]) == before
    for change in ({"zone": "Europe/Paris"}, {"holidays": ["DE"]}, {"idle_for": "16m"}, {"also_on": ["2026-12-05"]}, {"only": "stop"}, {"start_also": True}):
        after = digests(**({"on": ["mon,tue 08:00-19:00"]} | change))
        assert all(one != other for one, other in zip(before, after, strict=True)), change


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sat,sun 10:00-14:00", (Weekly(5, time(10), 0, time(14)), Weekly(6, time(10), 0, time(14)))),
        ("sat-mon 10:00-14:00", tuple(Weekly(day, time(10), 0, time(14)) for day in (5, 6, 0))),
        ("Fri 22:00 - 06:00", (Weekly(4, time(22), 1, time(6)),)),
        ("mon-fri 18:00-00:00", tuple(Weekly(day, time(18), 1, time()) for day in range(5))),
        ("fri 18:00-mon 06:00", (Weekly(4, time(18), 3, time(6)),)),
        ("mon 10:00-mon 09:00", (Weekly(0, time(10), 7, time(9)),)),
        ("mon 09:00-mon 10:00", (Weekly(0, time(9), 0, time(10)),)),
        ("sat 00:00-sun 00:00", (Weekly(5, time(), 1, time()),)),
    ],
)
def test_intervals_of_a_week(text: str, expected: tuple[Weekly, ...]) -> None:
    assert words.weekly(text) == expected


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-12-05 09:00-17:00", "2026-12-05T09:00", "2026-12-05T17:00"),
        ("2026-12-05 19:00 to 2026-12-06 02:00", "2026-12-05T19:00", "2026-12-06T02:00"),
        ("2028-02-29", "2028-02-29T00:00", "2028-03-01T00:00"),
        (date(2028, 2, 29), "2028-02-29T00:00", "2028-03-01T00:00"),
        ("2026-12-24 to 2027-01-01", "2026-12-24T00:00", "2027-01-02T00:00"),
    ],
)
def test_single_stretches(text: object, start: str, end: str) -> None:
    assert words.once(text) == Once(datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize(
    ("change", "path", "remedy"),
    [
        ({"zone": "Europe/Belrin"}, "hours.office.zone", "does not exist"),
        ({"zone": "CET"}, "hours.office.zone", "IANA"),
        ({"zone": "+01:00"}, "hours.office.zone", "IANA"),
        ({"on": []}, "hours.office.on", "is empty"),
        ({"on": "mon-fri 08:00-19:00"}, "hours.office.on", "in brackets"),
        ({"on": ["08:00-19:00"]}, "hours.office.on", "mon-fri 08:00-19:00"),  # a day is never assumed
        ({"on": ["mon-fri 08:00-"]}, "hours.office.on", "mon-fri 08:00-19:00"),
        ({"on": ["mon-fri 19:00-24:00"]}, "hours.office.on", "00:00 of the next day"),
        ({"on": ["mon-fri 08:60-19:00"]}, "hours.office.on", "does not exist"),
        ({"on": ["sat-sun 03:00-03:00"]}, "hours.office.on", 'for a whole day write "sat 00:00-sun 00:00"'),
        ({"on": ["mon 08:00-mon 08:00"]}, "hours.office.on", "two intervals that meet"),
        ({"on": ["weekdays 08:00-19:00"]}, "hours.office.on", "mon-fri"),
        ({"on": ["mon-xyz 08:00-19:00"]}, "hours.office.on", "the days are mon"),
        ({"on": ["mon-fri,wed 08:00-19:00"]}, "hours.office.on", "names a day twice"),
        ({"on": ["mon-fri 08:00-19:00", "wed 18:59-20:00"]}, "hours.office.on", "overlap"),
        ({"on": ["sun 22:00-06:00", "mon 05:59-12:00"]}, "hours.office.on", "overlap"),  # over the end of the week
        ({"on": ["fri 18:00-mon 06:00", "sat 10:00-11:00"]}, "hours.office.on", "overlap"),
        ({"on": [8]}, "hours.office.on", "not an interval"),
        ({"holidays": ["XX"]}, "hours.office.holidays", "are not known"),
        ({"holidays": ["DE-XX"]}, "hours.office.holidays", "known are"),
        ({"holidays": ["Germany"]}, "hours.office.holidays", "write a country"),
        ({"holidays": ["2026-02-30"]}, "hours.office.holidays", "not in the calendar"),
        ({"holidays": ["DE", "DE"]}, "hours.office.holidays", "twice"),
        ({"also_on": ["2026-12-05 22:00-06:00"]}, "hours.office.also_on", "write both dates"),
        ({"also_on": ["sat 09:00-17:00"]}, "hours.office.also_on", "2026-12-05 09:00-17:00"),
        ({"also_on": ["2026-12-05"], "also_off": ["2026-12-05 09:00-10:00"]}, "hours.office.also_off", "overlaps also_on"),
        ({"only": "both"}, "hours.office.only", '"stop" or "start"'),
        ({"only": "stop", "start_also": True}, "hours.office.start_also", "remove one"),
        ({"if_unknown": "stop"}, "hours.office.if_unknown", 'write "hold"'),
        ({"if_busy": "kill"}, "hours.office.if_busy", '"hold" or "stop"'),
        ({"idle_for": "4m"}, "hours.office.idle_for", "shorter than 5m"),
        ({"warn": {"for": "1m"}}, "hours.office.warn.for", "shorter than 5m"),
        ({"held_for": "10m"}, "hours.office.held_for", "shorter than idle_for"),
        ({"start_also": "yes"}, "hours.office.start_also", "without quotes"),
        ({"start_order": "rank"}, "hours.office.start_order", "tag:KEY"),
        ({"off": ["sat"]}, "hours.office.off", "unknown key"),
    ],
)
def test_what_is_not_clear_is_refused(change: dict[str, Any], path: str, remedy: str) -> None:
    told = refused(office=OFFICE | change)

    assert f"fleet.toml: {path}" in told
    assert remedy in told


def test_a_schedule_that_is_not_there_is_named_and_so_are_those_that_are() -> None:
    told = refused({"hours": "offce"}, office=OFFICE)

    assert 'policy.all.hours: "offce" is not a schedule' in told
    assert "(office)" in told


def test_names_that_a_tag_could_not_tell_apart_are_refused() -> None:
    assert "are the same name to a tag" in refused(office=OFFICE, Office=OFFICE)
    assert "stands for no schedule" in refused(never=OFFICE)


def test_another_word_for_the_table_is_answered_with_the_right_one() -> None:
    with pytest.raises(ConfigurationError, match=r"schedules: does not belong here; write \[hours.NAME\]"):
        reaper.config.parse({"schema": 1, "schedules": {"office": OFFICE}, "policy": {"all": {}}}, "fleet.toml")


def test_what_an_operator_should_look_at_is_called_out() -> None:
    scope = {"tags": {"team": ["ml"]}, "verbs": ["stop"]}
    office = OFFICE | {"if_busy": "stop", "no_agent": "warn-and-stop", "on": ["fri 18:00-mon 06:00"], "holidays": ["DE"]}
    document = {"schema": 1, "name": "ml", "mode": "enforce", "scope": scope, "hours": {"office": office, "lab": OFFICE}, "policy": {"all": {"mode": "enforce", "hours": "office"}}}
    told = "\n".join(reaper.config.remarks(reaper.config.parse(document, "fleet.toml")))

    for words_ in ("stops machines at work", "nobody knows whether they work", "verbs do not name start", "write one interval a day", "hours.lab is named by no policy"):
        assert words_ in told


def test_unreadable_words_say_how_to_write_them() -> None:
    with pytest.raises(Unreadable, match="neither true nor false"):
        words.flag(1)
