"""A wish that was made on the machine, at the reaper's door: who is believed, when it ends, what cannot prolong it."""

from datetime import datetime, timedelta

import pytest

from agent.report import Keep
from reaper.model.audit import AuditKind
from reaper.service.host_keeps import MOST_ASKERS
from reaper.service.ingest import Rejected
from tests.service.door import SHARED
from tests.service.test_ingest import HOST, START, Door

CAP = timedelta(days=5)
HOUR = timedelta(hours=1)


@pytest.fixture
def door():
    made = Door()
    yield made
    made.store.close()


def wish(hours: float, reason: str = "demo", who: str = "mia") -> Keep:
    return Keep(hours * 3600.0, reason, who)


def ends(door: Door, at: datetime) -> list[datetime]:
    return [s.capped(CAP).until for s in door.store.snoozes(at) if s.resource == HOST and s.capped(CAP).active(at)]


def told(door: Door) -> list[str]:
    return [entry.because for entry in door.store.audit(HOST) if entry.kind is AuditKind.SNOOZED]


def test_wish_of_a_believed_machine_holds_it_and_says_who_asked(door):
    door.hear(1, keep=wish(4))

    (snooze,) = door.store.snoozes(door.clock.at)
    assert (snooze.resource, snooze.who, snooze.reason) == (HOST, "mia on the machine", "demo")
    assert snooze.until == door.clock.at + 4 * HOUR
    assert len(told(door)) == 1


def test_wish_that_comes_with_a_token_of_no_machine_holds_nothing(door):
    door.hear(1, token=SHARED, keep=wish(4))

    assert door.store.snoozes(door.clock.at) == ()


def test_counting_down_moves_no_end_and_a_wish_taken_back_lets_go(door):
    for minute in range(1, 10):
        door.hear(minute, keep=wish(4 - (minute - 1) / 60))
    assert ends(door, door.clock.at) == [START + timedelta(minutes=1) + 4 * HOUR]
    assert len(told(door)) == 1

    door.hear(10)

    assert ends(door, door.clock.at) == []
    assert any("withdrawn" in line for line in told(door))


def test_an_older_report_without_the_wish_does_not_let_go(door):
    door.hear(1)
    door.hear(3, keep=wish(4))
    door.hear(2, age_s=120.0)

    assert len(ends(door, door.clock.at)) == 1


def test_same_length_told_for_ever_does_not_move_the_end(door):
    for minute in range(1, 242):
        door.hear(minute, keep=wish(4))

    assert ends(door, door.clock.at) == []


def test_even_ever_new_wishes_end_at_the_cap_from_the_first(door):
    for step in range(0, 9 * 24 * 60, 60):
        door.hear(1 + step, keep=wish(4 + step / 10000))

    assert ends(door, door.clock.at) == []
    assert ends(door, START + timedelta(days=4)) == [START + timedelta(minutes=1) + CAP]


def test_wish_of_years_is_capped(door):
    door.hear(1, keep=wish(24 * 365 * 19))

    assert ends(door, door.clock.at) == [door.clock.at + CAP]


def test_a_wish_beyond_the_cap_hides_nobody_elses_and_each_has_a_cap_of_its_own(door):
    door.hear(1, keep=wish(24 * 30, "for ever", "ada"))
    later = 6 * 24 * 60
    door.hear(later, keep=wish(24 * 24, "for ever", "ada"))
    assert ends(door, door.clock.at) == []

    door.hear(later + 1, keep=wish(4, "demo", "bob"))
    at = door.clock.at
    door.hear(later + 2, keep=wish(24 * 24 - 0.1, "for ever", "ada"))

    assert ends(door, door.clock.at) == [at + 4 * HOUR]
    door.hear(later + 3)
    assert ends(door, door.clock.at) == []


def test_who_asks_again_after_the_own_wish_was_over_is_kept_again_beside_somebody_elses(door):
    door.hear(1, keep=wish(24 * 30, "for ever", "ada"))
    door.hear(2, keep=wish(1, "demo", "bob"))
    door.hear(3, keep=wish(24 * 30 - 1, "for ever", "ada"))
    later = 6 * 24 * 60
    door.hear(later, keep=wish(2, "again", "bob"))

    assert ends(door, door.clock.at) == [door.clock.at + 2 * HOUR]


def test_a_host_that_makes_up_askers_is_heard_for_a_few(door):
    for minute in range(1, 40):
        door.hear(minute, keep=wish(4, "demo", f"user-{minute}"))

    assert len(ends(door, door.clock.at)) == MOST_ASKERS


def test_unreadable_wish_is_refused_with_its_field_and_the_standing_one_holds(door):
    door.hear(1, keep=wish(4))
    with pytest.raises(Rejected, match=r"keep\.for_s"):
        door.hear(2, keep=Keep(1e12))

    assert len(ends(door, door.clock.at)) == 1


def test_end_by_itself_is_told(door):
    door.hear(1, keep=wish(1))
    door.hear(63)

    assert any("ended by itself" in line for line in told(door))
