"""
The engine's promises as properties: one more objection never creates an action and never makes one harsher, one more cause
never lifts an objection. Twenty thousand cases for each of the two, no deadline; a failing run prints its seed.

REAPER_SEED=N repeats a run.
"""

import itertools
import os
import random

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from reaper.decide.causes import CAUSES
from reaper.decide.engine import choose, decide, explain
from reaper.decide.guards import GUARDS
from reaper.model.decision import Action, Finding, FindingKind, Verdict
from tests.builders import NOW, facts, finding, held_facts

SEED = int(os.environ.get("REAPER_SEED") or random.SystemRandom().randrange(2**32))
CASES = 20_000
"""Of the two promises. What the choice and a decision are otherwise is tried on fewer."""

RULES = ("gpu-idle", "held", "job-ended", "schedule")
NOMINATIONS = [finding(rule, FindingKind.NOMINATE, action) for rule, action in itertools.product(RULES, Action)]
EXEMPTIONS = [(), ("gpu-idle",), ("held", "schedule"), RULES]
OBJECTIONS = [
    finding(f"guard-{kind}-{everything}-{n}", kind, exempts=exempts, everything=everything)
    for kind in (FindingKind.PROTECT, FindingKind.HOLD)
    for everything in (False, True)
    for n, exempts in enumerate(EXEMPTIONS)
]
NOTES = [finding("note", FindingKind.NOTE)]

POOL = NOMINATIONS + OBJECTIONS * 3 + NOTES


def some_of(pool, most):
    """Up to ``most`` of a pool. One number is drawn and its digits are the choices, which is ten times faster than a list."""
    base = len(pool) + 1

    def chosen(number):
        picked = []
        while number:
            number, digit = divmod(number, base)
            picked += pool[digit - 1 : digit] if digit else []
        return picked

    return st.integers(0, base**most - 1).map(chosen)


nominations = st.sampled_from(NOMINATIONS)
objections = st.sampled_from(OBJECTIONS)
everything_said = some_of(POOL, 7)


def many(cases):
    return lambda test: seed(SEED)(settings(max_examples=cases, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))(test))


def brute_force(findings):
    """The rule as the design says it, in its own words: (verdict, action)."""
    asked = [f for f in findings if f.kind is FindingKind.NOMINATE]
    for action in Action:  # from gentle to harsh
        own = [f.rule for f in asked if f.action is action]
        if not own:
            continue
        if action is Action.KEEP:
            return Verdict.KEEP, action
        takes_away = list(Action).index(action) > list(Action).index(Action.START)
        against = [f for f in findings if f.kind in (FindingKind.HOLD, FindingKind.PROTECT) and (takes_away or f.everything)]
        if any(all(rule in objection.exempts for objection in against) for rule in own):
            return Verdict.ACT, action
        return (Verdict.KEEP if any(f.kind is FindingKind.PROTECT for f in against) else Verdict.WAIT), action
    return Verdict.KEEP, Action.KEEP


@many(2_000)
@given(everything_said)
def test_the_choice_is_what_the_rule_says_word_by_word(findings):
    note(f"REAPER_SEED={SEED}")
    verdict, action, nomination, objection = choose(findings)

    assert (verdict, action) == brute_force(findings)
    assert (objection is None) == (verdict is Verdict.ACT or nomination is None or action is Action.KEEP)


@many(CASES)
@given(everything_said, objections)
def test_one_more_objection_never_creates_an_action_and_never_makes_one_harsher(findings, more):
    note(f"REAPER_SEED={SEED}")
    before, gentle, *_ = choose(findings)
    after, action, *_ = choose([*findings, more])

    assert action.harshness <= gentle.harshness
    assert before is Verdict.ACT or after is not Verdict.ACT


@many(CASES)
@given(everything_said, nominations)
def test_one_more_cause_never_lifts_an_objection(findings, more):
    note(f"REAPER_SEED={SEED}")
    verdict, action, nomination, _ = choose([*findings, more])
    before, before_action, *_ = choose(findings)

    if verdict is Verdict.ACT:
        binding = [f for f in findings if f.kind in (FindingKind.HOLD, FindingKind.PROTECT) and (f.everything or action.takes_away)]
        assert all(nomination.rule in objection.exempts for objection in binding)
    if before is not Verdict.ACT and before_action is not Action.KEEP and verdict is Verdict.ACT:
        assert nomination == more  # only what the objection never bound may act, and nothing harsher than was asked for
        assert action.harshness <= before_action.harshness


@many(2_000)
@given(everything_said, st.integers(0, 2**32))
def test_the_order_of_the_rules_does_not_matter(findings, order):
    note(f"REAPER_SEED={SEED}")
    one, other = choose(findings), choose(random.Random(order).sample(findings, len(findings)))

    assert one[:2] == other[:2]
    assert (one[2] is None, one[3] is None) == (other[2] is None, other[3] is None)
    assert one[3] is None or one[3].kind is other[3].kind


def raising(facts, now):
    raise ZeroDivisionError("no cores")


BASES = {"idle": facts(), "held": held_facts(), "unknown": facts(quiet=None), "protected": facts(protections=None)}


@many(2_000)
@given(st.sampled_from(sorted(BASES)), some_of(NOMINATIONS, 4), some_of(OBJECTIONS, 4), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_a_broken_rule_holds_everything_and_a_decision_is_the_same_twice(base, causes, guards, break_cause, break_guard, order):
    note(f"REAPER_SEED={SEED}")
    its = BASES[base]
    asked = [(f.rule, lambda _f, _n, f=f: f) for f in causes] + [("broken-cause", raising)] * break_cause
    objecting = [(f.rule, lambda _f, _n, f=f: f) for f in guards] + [("broken-guard", raising)] * break_guard
    first, again = decide(its, NOW, asked, objecting), decide(its, NOW, asked, objecting)
    random.Random(order).shuffle(asked)
    random.Random(order).shuffle(objecting)
    shuffled = decide(its, NOW, asked, objecting)

    assert (first.verdict, first.action, first.cause) == (again.verdict, again.action, again.cause)
    assert (first.verdict, first.action, len(first.findings)) == (shuffled.verdict, shuffled.action, len(shuffled.findings))
    if break_cause or (break_guard and causes):
        assert first.verdict is not Verdict.ACT
    assert (first.cause is None) == (first.action is Action.KEEP and not any(f.action is Action.KEEP for f in causes))
    assert first.verdict is not Verdict.ACT or first.cause in [f.rule for f in causes if f.action is first.action]


@pytest.mark.parametrize("action", [Action.TAG, Action.START, Action.STOP, Action.DELETE])
@pytest.mark.parametrize("broken", ["cause", "guard"])
def test_a_rule_that_raises_holds_starts_and_tags_too(action, broken):
    causes = [("job-ended", lambda f, n: finding("job-ended", action=action))] + [("broken", raising)] * (broken == "cause")
    decided = decide(facts(), NOW, causes, [("broken", raising)] * (broken == "guard"))

    assert decided.verdict is Verdict.WAIT
    assert decided.action is action
    assert "ZeroDivisionError" in decided.because
    assert "no cores" in next(f.error for f in decided.findings if f.error)


def test_a_broken_cause_alone_nominates_nothing():
    decided = decide(facts(), NOW, [("broken", raising)], [])

    assert (decided.verdict, decided.action, decided.cause) == (Verdict.KEEP, Action.KEEP, None)
    assert [f.rule for f in decided.findings] == ["broken"]


def test_an_objection_to_the_gentle_action_does_not_let_the_harsh_one_through():
    stop, terminate = finding("gpu-idle"), finding("schedule", action=Action.TERMINATE)
    objection = finding("guard", FindingKind.HOLD, exempts=("schedule",))

    assert choose([terminate, stop])[:2] == (Verdict.ACT, Action.STOP)
    assert choose([terminate, stop, objection])[:2] == (Verdict.WAIT, Action.STOP)


def test_a_cause_that_asks_to_keep_it_is_the_gentlest_of_all():
    assert choose([finding("gpu-idle"), finding("schedule", action=Action.KEEP)])[:2] == (Verdict.KEEP, Action.KEEP)


def test_a_start_needs_no_leave_of_the_guards_of_stops():
    assert choose([finding("schedule", action=Action.START), finding("g", FindingKind.PROTECT)])[:2] == (Verdict.ACT, Action.START)


def test_the_stronger_objection_gives_the_verdict_whatever_comes_first():
    hold, protect = finding("h", FindingKind.HOLD), finding("p", FindingKind.PROTECT)

    assert choose([finding(), hold, protect])[3] == protect
    assert choose([finding(), protect, hold])[0] is Verdict.KEEP


def test_without_a_nomination_no_guard_is_asked_and_explain_asks_them_all():
    busy = facts(quiet=None, newest=None)

    assert decide(busy, NOW, CAUSES, [("broken", raising)]).findings == ()
    assert {f.rule for f in explain(busy, NOW).findings} == {"blind"}


def test_facts_that_cannot_be_read_are_blind_and_hold():
    class Torn:
        def __getattr__(self, name):
            raise RuntimeError("torn")

    decided = decide(facts(newest=Torn()), NOW)

    assert decided.verdict is not Verdict.ACT
    assert decided.state.activity.value == "unknown"


def test_a_perfectly_idle_machine_would_be_stopped():
    for its, cause in ((facts(), "gpu-idle"), (held_facts(), "held")):
        decided = decide(its, NOW)

        assert (decided.verdict, decided.action, decided.cause, decided.objections) == (Verdict.ACT, Action.STOP, cause, ())


def test_every_finding_is_named_after_its_rule():
    for name, rule in CAUSES + GUARDS:
        answer = rule(facts(), NOW)
        assert answer is None or isinstance(answer, Finding)
        assert answer is None or answer.rule == name
    assert len({name for name, _ in CAUSES + GUARDS}) == len(CAUSES + GUARDS)
