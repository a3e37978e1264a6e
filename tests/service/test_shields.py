"""What protects a machine, and for how long after it is gone."""

from datetime import UTC, datetime, timedelta

import pytest

from reaper.model.policy import Protection, Selector
from reaper.service.shields import KEEP_UNTIL, current, read_keep_until, remember
from tests.builders import DAY, HOUR, MINUTE, NOW, SECOND, configuration, instance

CAP = 5 * DAY


@pytest.mark.parametrize(("text", "until"), [
    pytest.param("2026-03-10", datetime(2026, 3, 11, 12, tzinfo=UTC), id="a date is kept to its end in the last zone on earth"),
    pytest.param("2026-03-10T08:00:00Z", datetime(2026, 3, 10, 8, tzinfo=UTC), id="with a zone"),
    pytest.param("2026-03-10T08:00:00+02:00", datetime(2026, 3, 10, 6, tzinfo=UTC), id="with another zone"),
    pytest.param("2026-03-10 08:00", datetime(2026, 3, 10, 20, tzinfo=UTC), id="without a zone the latest reading"),
    pytest.param(" 2026-03-10T08:00Z ", datetime(2026, 3, 10, 8, tzinfo=UTC), id="with blanks around it"),
    pytest.param("1773129600", datetime(2026, 3, 10, 8, tzinfo=UTC), id="seconds since 1970, for labels"),
])  # fmt: skip
def test_a_keep_until_is_read(text, until):
    assert read_keep_until(text) == until


UNREADABLE = ["", " ", "forever", "friday", "10.03.2026", "2026-13-01", "20260310", "1773129600000", "2026-03-10T25:00", "²³²³²³²³²³", "0", "-1773129600",
              "0001-01-01T00:00:00+14:00", "9999-12-31T23:59", "9999-12-31", "2026-03-10T08:00Z until Ada is back", "nan"]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_keep_until_that_cannot_be_read_protects(text):
    machine = instance(tags={KEEP_UNTIL: text})
    (shield,) = current(machine, configuration(), CAP, {}, NOW)

    assert read_keep_until(text) is None
    assert shield.holds(NOW + 400 * DAY)


def protections(machine, its=None, seen=None, now=NOW, cap=CAP):
    """(what holds now, the records after this cycle), as one cycle sees it."""
    seen = seen or {}
    held, keep, drop = remember(machine, current(machine, its or configuration(), cap, seen, now), seen, now)
    after = {**seen, **{record.name: record for record in keep}}
    for record in drop:
        after.pop(record.name, None)
    return [shield for shield in held if shield.holds(now)], after


def listed(until=None):
    return configuration(protections=(Protection("run", Selector(ids=("i-01",)), "pre-training", until),))


KEPT = instance(tags={KEEP_UNTIL: "2026-03-06T12:00Z"})


def test_what_the_operator_lists_protects_until_it_ends():
    its = listed(NOW + DAY)

    assert [s.name for s in protections(instance(), its)[0]] == ["protect.run"]
    assert protections(instance(), its, now=NOW + DAY)[0] == []
    assert protections(instance("i-02"), its)[0] == []


@pytest.mark.parametrize("key", ["reaper-keep-until", "Reaper-Keep-Until", "REAPER-KEEP-UNTIL", " reaper-keep-until "])
def test_the_tag_is_read_however_its_key_is_written(key):
    assert protections(instance(tags={key: "2026-03-06T12:00Z"}))[0] != []


def test_of_two_spellings_the_later_end_wins():
    machine = instance(tags={KEEP_UNTIL: "2026-03-01T12:00Z", "Reaper-Keep-Until": "2026-03-06T12:00Z"})

    assert max(shield.until for shield in protections(machine)[0]) == NOW + 2 * DAY


@pytest.mark.parametrize("key", ["keep-until", "rеaper-keep-until", "reaper-keep-until2"])
def test_other_tags_say_nothing(key):
    assert protections(instance(tags={key: "2027-01-01"}))[0] == []


def test_the_tag_protects_up_to_the_operators_cap_from_its_first_sight():
    machine = instance(tags={KEEP_UNTIL: "2030-01-01"})
    held, seen = protections(machine)

    assert [s.until for s in held] == [NOW + CAP]
    for hours in range(1, 24 * 9):
        now = NOW + hours * HOUR
        held, seen = protections(machine, seen=seen, now=now)
        assert (held != []) is (now < NOW + CAP)


def test_a_new_value_is_capped_anew():
    _, seen = protections(instance(tags={KEEP_UNTIL: "2030-01-01"}))
    held, _ = protections(instance(tags={KEEP_UNTIL: "2030-01-02"}), seen=seen, now=NOW + 4 * DAY)

    assert max(s.until for s in held) == NOW + 4 * DAY + CAP


def test_a_protection_that_vanished_holds_for_a_day_from_the_cycle_that_noticed():
    _, seen = protections(KEPT)
    noticed = NOW + 7 * HOUR
    held, seen = protections(instance(), seen=seen, now=noticed)

    assert ["vanished" in s.reason for s in held] == [True]
    for minutes in (1, 60, 24 * 60 - 1):
        held, seen = protections(instance(), seen=seen, now=noticed + minutes * MINUTE)
        assert held != []
    held, seen = protections(instance(), seen=seen, now=noticed + DAY)
    assert (held, seen) == ([], {})


def test_a_listed_protection_without_an_end_that_vanished_holds_for_a_day():
    _, seen = protections(instance(), listed())

    assert protections(instance(), seen=seen, now=NOW + MINUTE)[0] != []


def test_one_that_ended_on_time_does_not_hold_any_longer():
    _, seen = protections(KEPT)
    held, seen = protections(instance(), seen=seen, now=NOW + 2 * DAY)

    assert (held, seen) == ([], {})


def test_one_whose_end_was_moved_before_now_holds_for_a_day():
    _, seen = protections(instance(), listed(NOW + 90 * DAY))
    held, seen = protections(instance(), listed(NOW - DAY), seen, NOW + MINUTE)
    later, seen = protections(instance(), listed(NOW - DAY), seen, NOW + DAY + MINUTE)
    last, _ = protections(instance(), listed(NOW - DAY), seen, NOW + DAY + 2 * MINUTE)

    assert held != []
    assert (later, last) == ([], [])


def test_one_that_comes_back_forgets_that_it_was_gone():
    _, seen = protections(KEPT)
    _, seen = protections(instance(), seen=seen, now=NOW + HOUR)
    _, seen = protections(KEPT, seen=seen, now=NOW + 2 * HOUR)
    held, seen = protections(instance(), seen=seen, now=NOW + 20 * HOUR)

    assert [s.until for s in held] == [NOW + 20 * HOUR + DAY]


def test_a_tag_that_changed_its_value_keeps_the_old_one_for_a_day():
    _, seen = protections(KEPT)
    held, _ = protections(instance(tags={KEEP_UNTIL: "2026-03-04T12:00:01Z"}), seen=seen, now=NOW + SECOND)

    assert [s.until for s in held] == [NOW + SECOND + DAY]


def test_a_protection_in_the_past_at_first_sight_says_nothing():
    assert protections(instance(tags={KEEP_UNTIL: "2020-01-01"}))[0] == []


def test_a_cap_of_nothing_leaves_nothing():
    assert protections(KEPT, cap=timedelta(0))[0] == []
