"""After hours: who is nominated, since when, and who is not."""

from dataclasses import replace
from datetime import time, timedelta

import pytest

from reaper.decide.causes.after_hours import after_hours
from reaper.decide.closing import Closing, closing, owed_by
from reaper.decide.engine import decide
from reaper.decide.last_look import last_look
from reaper.model.decision import Action, Verdict
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Stage
from reaper.model.policy import Hours
from reaper.model.schedule import Schedule, Weekly
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    facts,
    gpu,
    instance,
    loader,
    mark,
    member,
    observation,
    policy,
    quiet,
    shield,
    snooze,
)
from tests.decide.tables import rows

SECOND = timedelta(seconds=1)
OFFICE = Schedule("office", "UTC", tuple(Weekly(day, time(8), 0, time(19)) for day in range(5)))
HOURS = Hours(OFFICE)
EVENING = NOW.replace(hour=19)  # of a Wednesday
SHORT = {timedelta(minutes=15): (1.0, "gpu GPU-0")}


def off(hours=HOURS, ended_ago=HOUR):
    return Closing(hours, NOW - ended_ago, off=True)


def near(hours=HOURS):
    return Closing(hours, NOW + 20 * MINUTE, off=False)


def resting(**changes):
    """Idle for twenty minutes, which is enough after hours and for no other cause."""
    covered = {"covered": SHORT, "host_covered": {timedelta(minutes=15): (1.0, "cpu")}}
    return facts(**({"quiet": quiet(20 * MINUTE, **covered), "closing": off()} | changes))


def busy(**changes):
    seen = observation(gpus=(gpu(peak=0.9, processes=1),), loaders=(loader(),))
    return resting(**({"quiet": quiet(timedelta(0), covered=SHORT, host_covered=SHORT), "newest": seen} | changes))


STOPS_WORK = replace(HOURS, if_busy="stop")
STOPS_UNSEEN = replace(HOURS, no_agent="warn-and-stop")
UNSEEN = {"quiet": None, "newest": None, "agent_seen": False}


@rows([
    ("after hours the short term is enough", resting(), "nothing held for 20m"),
    ("shortly before, too, so that people are warned before", resting(closing=near()), "end at 12:20 UTC"),
    ("within hours it is not", resting(closing=None), None),
    ("idle for less", resting(quiet=quiet(14 * MINUTE)), None),
    ("memory held, by the term of held machines", resting(quiet=quiet(20 * MINUTE, unheld_for=timedelta(0))), "memory or a process held"),
    ("memory held, and that term is longer", resting(closing=off(replace(HOURS, held_for=HOUR)), quiet=quiet(20 * MINUTE, unheld_for=timedelta(0))), None),
    ("at work", busy(), None),
    ("at work, where its schedule stops work", busy(closing=off(STOPS_WORK)), "it is at work"),
    ("never had an agent", resting(**UNSEEN), None),
    ("never had an agent, where its schedule stops such", resting(**UNSEEN, closing=off(STOPS_UNSEEN)), "it never had an agent"),
    ("had one that fell silent", resting(quiet=None, newest=None, closing=off(STOPS_UNSEEN)), None),
    ("a policy that only reports", resting(policies=(policy(action="report"),)), None),
    ("no policy", resting(policies=()), None),
    ("stopped already", resting(instance=instance(state=InstanceState.STOPPED)), None),
])  # fmt: skip
def test_who_is_nominated(given, expected):
    answer = after_hours(given, NOW)

    assert (answer is None) == (expected is None)
    if answer is not None:
        assert expected in answer.because
        assert answer.action is Action.STOP
        assert answer.not_before == given.closing.ends_at


@rows([
    ("an idle machine goes", resting(), None),
    ("work holds it", busy(), "no cause"),
    ("an unknown state holds it", resting(newest=observation(ended_ago=10 * MINUTE)), "silent"),
    ("a missing GPU holds it", resting(instance=instance(gpus=2)), "1 of 2"),
    ("little seen of the short term holds it", resting(quiet=quiet(20 * MINUTE, covered={timedelta(minutes=15): (0.5, "gpu GPU-0")}, host_covered=SHORT)), "covered 50%"),
    ("a job that waits for data holds it", resting(newest=observation(gpus=(gpu(processes=1),), loaders=(loader(wait=0.9),))), "waited"),
    ("a snooze holds it", resting(snoozes=(snooze(),)), "ada keeps it"),
    ("the keep-until tag protects it", resting(shields=(shield("tag reaper-keep-until"),)), "protected"),
    ("another of its job at work holds it", resting(gang="job", members=(member(quiet_for=MINUTE),)), "quiet for 1m"),
    ("all of its job idle for the short term go", resting(gang="job", members=(member(quiet_for=20 * MINUTE),)), None),
    ("started a moment ago", resting(running_since=NOW - MINUTE), "started 1m ago"),
    ("what never had an agent", resting(**UNSEEN), "no cause"),
    ("what never had one, where its schedule stops such, goes", resting(**UNSEEN, closing=off(STOPS_UNSEEN)), None),
    ("work, where its schedule stops it, goes", busy(closing=off(STOPS_WORK)), None),
    ("what is unknown never goes, whatever the schedule says of work", busy(closing=off(STOPS_WORK), newest=observation(ended_ago=10 * MINUTE)), "silent"),
    ("work in a job of several holds, whatever the schedule says", busy(closing=off(STOPS_WORK), gang="job", members=(member(quiet_for=None),)), "quiet for no time"),
])  # fmt: skip
def test_the_same_guards_bind_it(given, expected):
    decided = decide(given, NOW)

    assert (decided.verdict is Verdict.ACT) == (expected is None), decided.because
    if expected == "no cause":
        assert decided.cause is None
    elif expected is not None:
        assert any(expected in objection.because for objection in decided.objections)


def test_a_schedule_that_stops_work_lifts_no_objection_of_another_cause():
    idle_by_its_policy = busy(quiet=quiet(4 * HOUR), closing=None)

    assert decide(idle_by_its_policy, NOW).verdict is Verdict.WAIT


@pytest.mark.parametrize(
    ("moment", "started", "bound"),
    [
        ("12:00", None, None), ("18:29", None, None), ("18:30", None, False), ("18:59", None, False), ("19:00", None, True), ("23:00", None, True),
        ("23:00", "18:50", True), ("23:00", "19:00", None), ("23:00", "21:00", None),
    ],
)  # fmt: skip
def test_when_the_terms_bind_and_that_a_start_in_the_night_lifts_them(moment, started, bound):
    day = EVENING.date()
    now = EVENING.replace(hour=int(moment[:2]), minute=int(moment[3:]))
    since = EVENING.replace(hour=int(started[:2]), minute=int(started[3:])) if started else NOW - DAY
    its = closing(HOURS, since, now)

    assert (its.off if its is not None else None) is bound
    assert its is None or its.ends_at is not None and its.ends_at.date() == day


def test_what_was_started_in_the_night_goes_at_the_next_end_of_hours():
    started = EVENING + 2 * HOUR

    assert closing(HOURS, started, EVENING + 13 * HOUR) is None
    assert closing(HOURS, started, EVENING + DAY - 30 * MINUTE) == Closing(HOURS, EVENING + DAY, off=False)
    assert closing(HOURS, started, EVENING + DAY) == Closing(HOURS, EVENING + DAY, off=True)


def test_a_schedule_that_only_starts_stops_nothing_and_one_that_only_stops_owes_nothing():
    starts, stops = (replace(HOURS, schedule=replace(OFFICE, only=only)) for only in ("start", "stop"))

    assert closing(starts, NOW - DAY, EVENING) is None
    assert owed_by(starts, EVENING) == "office"
    assert closing(stops, NOW - DAY, EVENING) is not None
    assert owed_by(stops, EVENING) is None


def test_a_stop_outside_hours_is_owed_a_start_and_one_within_them_only_where_that_is_written():
    assert owed_by(HOURS, EVENING - SECOND) is None
    assert owed_by(HOURS, EVENING) == "office"
    assert owed_by(replace(HOURS, start_also=True), NOW) == "office"
    assert owed_by(None, EVENING) is None


def test_the_last_look_is_taken_of_work_only_where_its_schedule_stops_it_and_of_silence_only_where_there_never_was_an_agent():
    due = mark(Stage.DUE, cause="after-hours", due_at=NOW - 2 * MINUTE, not_before=NOW - 2 * MINUTE)
    seen = observation(gpus=(gpu(peak=0.9, processes=1),), loaders=(loader(),))

    assert "shows work" in (last_look(due, busy(newest=seen), NOW) or "")
    assert last_look(due, busy(newest=seen, closing=off(STOPS_WORK)), NOW) is None
    assert "shows work" in (last_look(replace(due, cause="gpu-idle"), busy(newest=seen, closing=off(STOPS_WORK)), NOW) or "")
    assert last_look(due, resting(**UNSEEN, closing=off(STOPS_UNSEEN)), NOW) is None
    assert last_look(due, resting(**UNSEEN), NOW) == "no verified report"
    assert "hours end at" in (last_look(replace(due, not_before=NOW + MINUTE), resting(), NOW) or "")


@pytest.mark.parametrize(("word", "action"), [("terminate", Action.STOP), ("stop-and-snapshot", Action.STOP_AND_SNAPSHOT), ("stop", Action.STOP)])
def test_the_clock_ends_no_machine_whatever_its_policy_does_with_one_that_was_idle_for_its_term(word, action):
    finding = after_hours(resting(policies=(policy(action=word, hours=HOURS),)), NOW)

    assert finding is not None
    assert finding.action is action
