"""How a mark moves: nominated, warned, due; what pauses it, and what makes it begin anew."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reaper.decide.engine import decide
from reaper.decide.lifecycle import accepted, advance, earliest
from reaper.model.decision import Action, FindingKind, Verdict
from reaper.model.mark import MarkChange, Stage
from reaper.model.policy import JobEndedTerms, Warn
from reaper.model.schedule import DailyHours
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    decision,
    facts,
    finding,
    gpu,
    held_facts,
    mark,
    observation,
    policy,
    quiet,
    shield,
    snooze,
)  # fmt: skip

CYCLE = MINUTE
TERMS = policy(warn=Warn(wait=HOUR))
ACT, WAIT, KEEP = decision(), decision(Verdict.WAIT, because="silent agent"), decision(Verdict.KEEP, because="protected")
NO_CAUSE = decision(Verdict.KEEP, action=Action.KEEP, cause=None, because="working")


def changes(step):
    return [event.change for event in step.events]


def run(its, terms, start, minutes, said=ACT, accept=True):
    """Cycles of a minute from ``start``; the mark at the end, and the moment it became due."""
    due_at = None
    for n in range(minutes):
        now = start + n * CYCLE
        its = advance(its, said, terms, now, CYCLE).mark
        if its is not None and its.stage is Stage.NOMINATED and accept:
            its, _ = accepted(its, now, "log")
        if its is not None and its.stage is Stage.DUE and due_at is None:
            due_at = now
    return its, due_at


def test_nominated_then_warned_then_due():
    first = advance(None, ACT, TERMS, NOW, CYCLE)
    its, event = accepted(first.mark, NOW, "webhook.team")
    its, due_at = run(its, TERMS, NOW + CYCLE, 60)

    assert (changes(first), first.warn, first.mark.stage) == ([MarkChange.NOMINATED], True, Stage.NOMINATED)
    assert (event.change, event.mark.warned_via) == (MarkChange.WARNED, "webhook.team")
    assert due_at == NOW + HOUR
    assert (its.stage, its.due_at) == (Stage.DUE, due_at)


def test_a_warning_that_no_channel_took_never_starts_the_wait():
    its, due_at = run(None, TERMS, NOW, 600, accept=False)

    assert due_at is None
    assert its.stage is Stage.NOMINATED
    assert its.waited == timedelta(0)
    assert advance(its, ACT, TERMS, NOW, CYCLE).warn


def test_the_wait_begins_with_the_acceptance_and_not_with_the_nomination():
    its = advance(None, ACT, TERMS, NOW, CYCLE).mark
    for n in range(1, 300):
        its = advance(its, ACT, TERMS, NOW + n * CYCLE, CYCLE).mark
    its, _ = accepted(its, NOW + 300 * CYCLE, "log")
    _, due_at = run(its, TERMS, NOW + 301 * CYCLE, 100)

    assert due_at == NOW + 300 * CYCLE + HOUR


BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
NIGHT = Warn(wait=HOUR, quiet=DailyHours(time(20), time(8), BERLIN))


def berlin(*when):
    return datetime(*when, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)


@pytest.mark.parametrize(("warned", "due"), [
    pytest.param(berlin(2026, 3, 4, 12, 0), berlin(2026, 3, 4, 13, 0), id="in the day"),
    pytest.param(berlin(2026, 3, 4, 19, 30), berlin(2026, 3, 5, 8, 31), id="half before the night and half after it"),
    pytest.param(berlin(2026, 3, 4, 23, 0), berlin(2026, 3, 5, 9, 0), id="warned before midnight"),
    pytest.param(berlin(2026, 3, 5, 3, 0), berlin(2026, 3, 5, 9, 0), id="warned after midnight"),
    pytest.param(berlin(2026, 3, 28, 19, 30), berlin(2026, 3, 29, 8, 31), id="over the night that has an hour less"),
    pytest.param(berlin(2026, 10, 24, 19, 30), berlin(2026, 10, 25, 8, 31), id="over the night that has an hour more"),
])  # fmt: skip
def test_the_wait_counts_outside_quiet_hours_only(warned, due):
    terms = policy(warn=NIGHT)
    its, _ = accepted(advance(None, ACT, terms, warned, CYCLE).mark, warned, "log")
    shown = earliest(its, terms, warned)
    _, due_at = run(its, terms, warned + CYCLE, 15 * 60)

    assert abs(due_at - due) <= MINUTE
    assert abs(shown - due_at) <= 2 * MINUTE


@pytest.mark.parametrize(("before", "now", "counted"), [
    pytest.param(berlin(2026, 3, 4, 7, 59), berlin(2026, 3, 4, 8, 0), timedelta(0), id="a minute that began in the night"),
    pytest.param(berlin(2026, 3, 4, 8, 0), berlin(2026, 3, 4, 8, 1), MINUTE, id="the first minute of the day"),
    pytest.param(berlin(2026, 3, 4, 19, 58), berlin(2026, 3, 4, 19, 59), MINUTE, id="the last but one"),
    pytest.param(berlin(2026, 3, 4, 19, 59), berlin(2026, 3, 4, 20, 0), timedelta(0), id="a minute that ends in the night"),
])
def test_a_minute_counts_only_if_all_of_it_lies_outside_quiet_hours(before, now, counted):
    assert advance(mark(Stage.WARNED, counted_at=before), ACT, policy(warn=NIGHT), now, CYCLE).mark.waited == counted


def test_once_due_quiet_hours_do_not_bind():
    due = mark()
    step = advance(due, ACT, policy(warn=NIGHT), NOW + 10 * HOUR, CYCLE)

    assert (step.mark.stage, step.events) == (Stage.DUE, ())


def test_a_pause_counts_nothing_and_is_announced_once():
    its = mark(Stage.WARNED, waited=30 * MINUTE)
    paused = advance(its, WAIT, TERMS, NOW, CYCLE)
    still = advance(paused.mark, WAIT, TERMS, NOW + CYCLE, CYCLE)
    resumed = advance(still.mark, ACT, TERMS, NOW + 2 * CYCLE, CYCLE)
    counted = advance(resumed.mark, ACT, TERMS, NOW + 3 * CYCLE, CYCLE)

    assert (changes(paused), changes(still), changes(resumed), changes(counted)) == ([MarkChange.PAUSED], [], [MarkChange.RESUMED], [])
    assert paused.mark.paused == "silent agent"
    assert resumed.mark.waited == 30 * MINUTE
    assert counted.mark.waited == 31 * MINUTE


def test_a_mark_on_hold_for_an_unstated_reason_still_stands_still():
    paused = advance(mark(Stage.WARNED), decision(Verdict.WAIT, because=""), TERMS, NOW, CYCLE).mark

    assert advance(paused, ACT, TERMS, NOW + CYCLE, CYCLE).mark.waited == timedelta(0)
    assert earliest(paused, TERMS, NOW) is None


def test_what_is_on_hold_is_not_nominated():
    assert advance(None, WAIT, TERMS, NOW, CYCLE).mark is None


def snoozed_by_ada():
    return decision(Verdict.WAIT, because="ada keeps it", findings=(finding(), finding("blind", FindingKind.HOLD), finding("snoozed", FindingKind.HOLD)))


@pytest.mark.parametrize(("its", "said", "terms", "why"), [
    pytest.param(mark(), NO_CAUSE, TERMS, "working", id="it works, or a hole began a new stretch"),
    pytest.param(mark(), KEEP, TERMS, "protected", id="a protection"),
    pytest.param(mark(), snoozed_by_ada(), TERMS, "snoozed says so", id="a snooze, behind other holds"),
    pytest.param(mark(), decision(policy=None), None, "idle for 4h", id="no policy any more"),
    pytest.param(mark(), ACT, policy(digest="training-2"), "policy training changed", id="its policy changed"),
    pytest.param(mark(), ACT, policy("serving", digest="training-1"), "came under policy serving", id="another policy"),
    pytest.param(mark(), decision(action=Action.HIBERNATE), TERMS, "hibernate is nominated instead", id="another action"),
    pytest.param(mark(), decision(Verdict.WAIT, action=Action.TERMINATE), TERMS, "terminate is nominated", id="another action, on hold"),
    pytest.param(mark(), decision(cause="held"), TERMS, "something was put on its GPUs", id="somebody put something on its GPUs"),
    pytest.param(mark(cause="job-ended"), ACT, TERMS, "gpu-idle nominates it now", id="the end of its job counts no more, idle as it is"),
    pytest.param(mark(cause="job-ended"), decision(cause="held"), TERMS, "held nominates it now", id="the same, and something is held"),
    pytest.param(mark(), decision(cause="job-ended"), TERMS, "job-ended nominates it now", id="the end of its job takes over, with a warning of its own"),
    pytest.param(mark(cause="held"), decision(cause="job-ended"), TERMS, "job-ended nominates it now", id="the same for what was held"),
    pytest.param(mark(cause="job-ended"), decision(Verdict.WAIT, because="silent agent"), TERMS, "gpu-idle nominates", id="the same while something holds"),
])  # fmt: skip
@pytest.mark.parametrize("stage", list(Stage))
def test_a_countdown_is_cleared_and_that_is_announced(its, said, terms, why, stage):
    step = advance(mark(stage, cause=its.cause), said, terms, NOW, CYCLE)

    assert changes(step)[0] is MarkChange.CLEARED
    assert why in step.events[0].because
    assert step.mark is None or (step.mark.stage, step.mark.waited, step.warn) == (Stage.NOMINATED, timedelta(0), True)


def test_letting_go_of_the_gpus_goes_on_with_the_countdown():
    assert advance(mark(Stage.WARNED, cause="held"), ACT, TERMS, NOW, CYCLE).mark.stage is Stage.WARNED


QUICK = policy(warn=NIGHT, job_ended=JobEndedTerms(45 * MINUTE, Warn(30 * MINUTE)))
ENDED = decision(cause="job-ended")


@pytest.mark.parametrize(("said", "terms", "served"), [
    pytest.param(ENDED, QUICK, 30 * MINUTE, id="the end of a job: its own wait, at night, too"),
    pytest.param(ACT, QUICK, HOUR + 6 * HOUR, id="idle: the policy's, and not at night"),
    pytest.param(ENDED, policy(warn=Warn(wait=HOUR)), HOUR, id="no terms of its own any more: the policy's"),
])  # fmt: skip
def test_each_cause_is_given_its_own_warning(said, terms, served):
    warned = berlin(2026, 3, 5, 2, 0)
    its, _ = accepted(advance(None, said, terms, warned, CYCLE).mark, warned, "log")
    shown = earliest(its, terms, warned)
    _, due_at = run(its, terms, warned + CYCLE, 15 * 60, said)

    assert abs(due_at - (warned + served)) <= MINUTE
    assert abs(shown - due_at) <= 2 * MINUTE


def test_wait_served_for_the_end_of_a_job_counts_nothing_for_another_cause():
    its, due_at = run(None, QUICK, NOW, 60, ENDED)
    other = advance(its, ACT, QUICK, NOW + HOUR, CYCLE)

    assert (due_at, its.stage) == (NOW + 30 * MINUTE, Stage.DUE)
    assert changes(other) == [MarkChange.CLEARED, MarkChange.NOMINATED]
    assert (other.mark.stage, other.mark.waited, other.mark.cause, other.warn) == (Stage.NOMINATED, timedelta(0), "gpu-idle", True)


def test_countdown_for_the_end_of_a_job_goes_on_when_the_longer_term_is_over_too():
    its, _ = run(None, QUICK, NOW, 10, ENDED)
    both = decision(cause="job-ended", findings=(finding("job-ended"), finding("gpu-idle")))

    assert advance(its, both, QUICK, NOW + 10 * CYCLE, CYCLE).mark.waited == its.waited + CYCLE


def test_a_long_gap_counts_two_cycles_at_most():
    its = mark(Stage.WARNED, counted_at=NOW)
    step = advance(its, ACT, TERMS, NOW + 9 * HOUR, CYCLE)

    assert step.mark.waited == 2 * CYCLE
    assert step.mark.stage is Stage.WARNED


def test_a_clock_that_is_set_back_takes_nothing_away_and_adds_nothing():
    its = mark(Stage.WARNED, counted_at=NOW + DAY, waited=30 * MINUTE)

    assert advance(its, ACT, TERMS, NOW, CYCLE).mark.waited == 30 * MINUTE


def test_a_wait_of_nothing_is_due_in_the_cycle_after_the_warning():
    terms = policy(warn=Warn(wait=timedelta(0)))
    its, _ = accepted(advance(None, ACT, terms, NOW, CYCLE).mark, NOW, "log")

    assert its.stage is Stage.WARNED
    assert advance(its, ACT, terms, NOW + CYCLE, CYCLE).mark.stage is Stage.DUE


@pytest.mark.parametrize(("its", "expected"), [
    pytest.param(mark(), NOW - 5 * MINUTE, id="due: since when"),
    pytest.param(mark(Stage.NOMINATED), None, id="not warned yet"),
    pytest.param(mark(Stage.WARNED, paused="blind"), None, id="stands still"),
    pytest.param(mark(Stage.WARNED, waited=20 * MINUTE), NOW + 40 * MINUTE, id="what is left"),
])  # fmt: skip
def test_the_earliest_moment_is_told_only_where_there_is_one(its, expected):
    assert earliest(its, TERMS, NOW) == expected


@pytest.mark.parametrize(("given", "stays"), [
    pytest.param(facts(), True, id="still idle"),
    pytest.param(facts(quiet=quiet(until=NOW - 10 * MINUTE), newest=observation(10 * MINUTE)), True, id="silent: paused"),
    pytest.param(facts(newest=observation(gpus=(gpu(peak=0.9),)), quiet=quiet(20 * SECOND)), False, id="busy: forgotten"),
    pytest.param(facts(quiet=quiet(MINUTE)), False, id="a hole: forgotten"),
    pytest.param(facts(shields=(shield(),)), False, id="protected: forgotten"),
    pytest.param(facts(snoozes=(snooze(),)), False, id="snoozed: forgotten"),
    pytest.param(held_facts(), False, id="a notebook was opened: begun anew"),
])  # fmt: skip
def test_from_facts_to_the_mark(given, stays):
    step = advance(mark(Stage.WARNED, waited=30 * MINUTE), decide(given, NOW), policy(), NOW, CYCLE)

    assert (step.mark is not None and step.mark.waited >= 30 * MINUTE) is stays


class CountdownModel(RuleBasedStateMachine):
    """Against a model of three numbers: is there a mark, was its warning taken, and how much of the wait was served."""

    @initialize(wait=st.integers(1, 6))
    def begin(self, wait):
        self.now, self.terms = NOW, policy(warn=Warn(wait=wait * MINUTE))
        self.mark, self.wait = None, wait * MINUTE
        self.there, self.taken, self.served, self.stood, self.due = False, False, timedelta(0), False, False

    def pass_time(self, gap):
        self.now += gap
        return min(gap, 2 * CYCLE)

    @rule(gap=st.sampled_from([SECOND, MINUTE, 2 * MINUTE, 3 * MINUTE, HOUR]))
    def acts(self, gap):
        counted = self.pass_time(gap)
        self.mark = advance(self.mark, ACT, self.terms, self.now, CYCLE).mark
        if not self.there:
            self.there, self.taken, self.served, self.stood, self.due = True, False, timedelta(0), False, False
        elif self.taken and not self.stood and not self.due:
            self.served += counted
        self.stood = False
        self.due = self.due or (self.taken and self.served >= self.wait)

    @rule()
    def warning_is_taken(self):
        if self.mark is not None and self.mark.stage is Stage.NOMINATED:
            self.mark, _ = accepted(self.mark, self.now, "log")
            self.taken, self.served = True, timedelta(0)

    @rule(gap=st.sampled_from([SECOND, MINUTE, HOUR]))
    def holds(self, gap):
        self.pass_time(gap)
        self.mark = advance(self.mark, WAIT, self.terms, self.now, CYCLE).mark
        self.stood = self.there

    @rule(said=st.sampled_from([NO_CAUSE, KEEP, snoozed_by_ada()]))
    def clears(self, said):
        self.pass_time(MINUTE)
        self.mark = advance(self.mark, said, self.terms, self.now, CYCLE).mark
        self.there = False

    @invariant()
    def they_agree(self):
        if not hasattr(self, "there"):
            return
        assert (self.mark is not None) is self.there
        if self.mark is None:
            return
        stage = Stage.DUE if self.due else Stage.WARNED if self.taken else Stage.NOMINATED
        assert self.mark.stage is stage
        assert (self.mark.paused is not None) is self.stood
        if stage is not Stage.DUE:
            assert self.mark.waited == self.served


CountdownModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, database=None)
TestCountdown = CountdownModel.TestCase
