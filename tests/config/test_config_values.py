"""Single values: what is taken, what is refused, and that a refusal says how to write it."""

from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reaper.config import pointers, values
from reaper.config.values import Unreadable
from reaper.model.schedule import DailyHours


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", timedelta(minutes=30)),
        ("2h", timedelta(hours=2)),
        ("90s", timedelta(seconds=90)),
        ("5d", timedelta(days=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("3650d", timedelta(days=3650)),
    ],
)
def test_durations_with_units_are_read(text: str, expected: timedelta) -> None:
    assert values.duration(text) == expected


@pytest.mark.parametrize(
    "value",
    ["-5m", "0s", "0h0m", "5mo", "5", "", " 2h", "2h ", "2h\n", "2H", "1.5h", "1h2h", "30m1h", "2 h", "٣h", "1w", "3651d"]
    + ["9999999999d", "9" * 5000 + "s", 30, 1.5, True, None, ["2h"], {"h": 2}, time(2, 0)],
)
def test_what_is_not_a_duration_is_refused_with_a_remedy(value: object) -> None:
    with pytest.raises(Unreadable) as refused:
        values.duration(value)

    assert refused.value.remedy.startswith(("write it in quotes with its unit", "write a shorter term", "write a term longer"))


@given(st.timedeltas(min_value=timedelta(seconds=1), max_value=values.LONGEST))
def test_a_written_duration_reads_back_as_itself(span: timedelta) -> None:
    whole = timedelta(seconds=int(span.total_seconds()))

    assert values.duration(values.written(whole)) == whole


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from("dhms")), max_size=5))
def test_parts_add_up_when_each_unit_comes_once_and_largest_first(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    order = ["dhms".index(unit) for _, unit in parts]
    sizes = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    total = sum(count * sizes[unit] for count, unit in parts)
    if order == sorted(set(order)) and 0 < total <= values.LONGEST.total_seconds():
        assert values.duration(text) == timedelta(seconds=total)
    else:
        with pytest.raises(Unreadable):
            values.duration(text)


@given(st.one_of(st.text(), st.text("0123456789dhms -.:"), st.integers(), st.floats(), st.none(), st.booleans()))
def test_any_value_is_a_term_within_bounds_or_is_refused(value: object) -> None:
    try:
        span = values.duration(value)
    except Unreadable:
        return

    assert timedelta(0) < span <= values.LONGEST


@pytest.mark.parametrize(("value", "expected"), [("5%", 0.05), ("0.5%", 0.005), ("100%", 1.0), ("5 %", 0.05), ("0%", 0.0), (0.3, 0.3)])
def test_shares_with_a_sign_and_true_fractions_are_read(value: object, expected: float) -> None:
    assert values.share(value) == pytest.approx(expected)


@pytest.mark.parametrize("value", [5, 1, 0, 1.0, 0.0, 50.0, -0.1, "5", "0.05", "101%", "-5%", "five%", True, None, float("nan"), float("inf")])
def test_shares_that_can_mean_two_things_are_refused(value: object) -> None:
    with pytest.raises(Unreadable, match="%"):
        values.share(value)


def test_quiet_hours_cross_midnight_in_their_zone() -> None:
    assert values.quiet("20:00-08:00 Europe/Berlin") == DailyHours(time(20), time(8), "Europe/Berlin")
    assert values.quiet("ignore") == "ignore"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("03:00-03:00 Europe/Berlin", "begins and ends at the same time"),
        ("20:00-08:00", "with its zone"),
        ("9:00-17:00 Europe/Berlin", "not an interval"),
        ("20:00-24:00 Europe/Berlin", "does not exist"),
        ("20:00-08:60 Europe/Berlin", "does not exist"),
        ("20:00-08:00 EST", "not the name of a place"),
        ("20:00-08:00 CET", "not the name of a place"),
        ("20:00-08:00 +02:00", "not the name of a place"),
        ("20:00-08:00 Europe/Atlantis", "does not exist"),
        ("20:00-08:00 America/Argentina", "does not exist"),
        ("20:00-08:00 ../../etc/passwd", "does not exist"),
        ("20:00-08:00 /etc/localtime", "not the name of a place"),
        (1200, "not an interval"),
        (time(20, 0), "20:00:00 without quotes"),
        (False, "not an interval"),
    ],
)
def test_unclear_quiet_hours_are_refused(value: object, words: str) -> None:
    with pytest.raises(Unreadable, match=words.replace("+", r"\+")):
        values.quiet(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2027-01-15", datetime(2027, 1, 16, 12, tzinfo=UTC)),
        (date(2027, 1, 15), datetime(2027, 1, 16, 12, tzinfo=UTC)),
        ("2027-01-15T18:00:00+01:00", datetime(2027, 1, 15, 17, tzinfo=UTC)),
        ("2027-01-15t18:00:00z", datetime(2027, 1, 15, 18, tzinfo=UTC)),
        (datetime(2027, 1, 15, 18, tzinfo=UTC), datetime(2027, 1, 15, 18, tzinfo=UTC)),
    ],
)
def test_a_date_protects_until_that_day_has_ended_everywhere(value: object, expected: datetime) -> None:
    assert values.until(value) == expected


@pytest.mark.parametrize(
    "value",
    ["2027-02-30", "2027-1-5", "15.01.2027", "2027-01-15T18:00:00", "2027-01-15T25:00:00Z", "20270115", "tomorrow", 20270115, 2027.5]
    + ["9999-12-31", "9999-12-31T23:59:59-12:00", "2027-01-15T23:59:60Z", datetime.fromisoformat("2027-01-15"), time(3), None, True],
)
def test_an_end_that_is_no_moment_is_refused(value: object) -> None:
    with pytest.raises(Unreadable, match="write a date"):
        values.until(value)


@pytest.mark.parametrize("value", ["i-0a1b2c3d4e5f60718", "i-0abc", "007", "aws:012345678901:us-gov-west-1:instance:i-0abc"])
def test_ids_are_taken_as_they_stand(value: str) -> None:
    assert pointers.instance_id(value) == value


@pytest.mark.parametrize(
    "value",
    [7, 0o7, "train-box-1", "i-*", "", " i-0abc", "i-0abc\n", "arn:aws:ec2:eu-west-1:1:instance/i-0abc", "aws:11:eu-west-1:instance:i-0abc"]
    + ["aws:111122223333:eu-west-1a:instance:i-0abc", "aws:111122223333:eu-west-1:volume:vol-1", "gcp:p:z:instance:1", None, True],
)
def test_what_selects_nothing_as_an_id_is_refused(value: object) -> None:
    with pytest.raises(Unreadable):
        pointers.instance_id(value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:5000", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:5000", True),
        ("http://localhost:5000", True),
        ("https://ec2.amazonaws.com", False),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1@example.com", False),
        ("not an address", False),
    ],
)
def test_loopback_is_this_machine_only(url: str, local: bool) -> None:
    assert pointers.loopback(url) is local


@pytest.mark.parametrize(("value", "refused"), [(4, False), (0, False), (-1, True), (True, True), (4.0, True), ("4", True), (10**7, True)])
def test_counts_are_whole_numbers(value: object, refused: bool) -> None:
    if refused:
        with pytest.raises(Unreadable):
            values.count(0)(value)
    else:
        assert values.count(0)(value) == value
