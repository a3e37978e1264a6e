"""
From facts to a decision. Pure: the same facts and the same moment give the same answer.

Of all nominated actions the gentlest is chosen first; it stands only if one of its own
nominations meets no objection. Choosing among the *surviving* nominations would be wrong:
one more objection could silence the gentle cause and let the harsh one through.
"""

import traceback
from collections.abc import Callable, Iterable
from datetime import datetime

from reaper.decide.causes import CAUSES
from reaper.decide.correlate import state_of
from reaper.decide.facts import Facts, Morning
from reaper.decide.guards import GUARDS
from reaper.decide.wanted import wanted
from reaper.model.decision import Action, Decision, Finding, FindingKind, Verdict
from reaper.model.signal import State

Rules = Iterable[tuple[str, Callable[[Facts, datetime], Finding | None]]]


def decide(facts: Facts, now: datetime, causes: Rules = CAUSES, guards: Rules = GUARDS) -> Decision:
    """
    Ask every rule, keep every finding. Without a nomination the guards are not asked: nothing would be held.

    A cause that raises holds like a guard that does: a broken rule stops everything, starts included.
    """
    nominations, broken = _ask(causes, facts, now)
    state = _state(facts, now)
    if not nominations and not broken:
        return _conclude(facts, state, (), ())
    objections, broken_guards = _ask(guards, facts, now)
    return _conclude(facts, state, nominations, (*objections, *broken, *broken_guards))


def explain(facts: Facts, now: datetime) -> Decision:
    """The same decision with every guard's answer, also where nothing nominates: what `why` shows."""
    nominations, broken = _ask(CAUSES, facts, now)
    objections, broken_guards = _ask(GUARDS, facts, now)
    return _conclude(facts, _state(facts, now), nominations, (*objections, *broken, *broken_guards))


def choose(findings: Iterable[Finding]) -> tuple[Verdict, Action, Finding | None, Finding | None]:
    """
    The fold itself: (verdict, action, the nomination that stands or else the first, the objection that decides).

    Properties that tests hold it to: one more objection never creates an action and never makes one harsher; one more
    cause never lifts an objection.
    """
    kept = tuple(findings)
    nominated = [f for f in kept if f.kind is FindingKind.NOMINATE and f.action is not None]
    if not nominated:
        return Verdict.KEEP, Action.KEEP, None, None
    gentlest = min((f.action for f in nominated if f.action is not None), key=lambda action: action.harshness)
    chosen = [f for f in nominated if f.action is gentlest]
    if gentlest is Action.KEEP:  # a cause that asks to keep it is the gentlest of all
        return Verdict.KEEP, Action.KEEP, chosen[0], None
    objections = [
        f
        for f in kept
        if f.kind in (FindingKind.PROTECT, FindingKind.HOLD) and (f.everything or gentlest.takes_away)
    ]
    for nomination in chosen:
        if not any(nomination.rule not in objection.exempts for objection in objections):
            return Verdict.ACT, gentlest, nomination, None
    strongest = min(objections, key=lambda f: (f.kind is not FindingKind.PROTECT, chosen[0].rule in f.exempts))
    verdict = Verdict.KEEP if strongest.kind is FindingKind.PROTECT else Verdict.WAIT
    return verdict, gentlest, chosen[0], strongest


def _ask(rules: Rules, facts: Facts, now: datetime) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    answers: list[Finding] = []
    broken: list[Finding] = []
    for name, rule in rules:
        try:
            finding = rule(facts, now)
        except Exception as error:  # noqa: BLE001 - a broken rule must hold, not end the cycle; its traceback goes to the log
            because = f"the rule failed: {type(error).__name__}"
            broken.append(Finding(name, FindingKind.HOLD, because, everything=True, error=traceback.format_exc()))
            continue
        if finding is not None:
            answers.append(finding)
    return tuple(answers), tuple(broken)


def _state(facts: Facts, now: datetime) -> State:
    try:
        return state_of(facts, now)
    except Exception:  # noqa: BLE001 - facts that cannot be read are blind, whatever the reason; `blind` reports it
        return State.BLIND


def _conclude(facts: Facts, state: State, nominations: tuple[Finding, ...], objections: tuple[Finding, ...]) -> Decision:
    findings = (*nominations, *objections)
    verdict, action, nomination, objection = choose(findings)
    policy = facts.policy
    if nomination is None:
        because = _no_cause(facts, state)
    else:
        because = objection.because if objection is not None else nomination.because
    return Decision(
        resource=facts.instance.id,
        verdict=verdict,
        state=state,
        action=action,
        cause=nomination.rule if nomination else None,
        policy=policy.name if policy else None,
        because=because,
        findings=findings,
    )


def _no_cause(facts: Facts, state: State) -> str:
    policy, quiet = facts.policy, facts.quiet
    if policy is None:
        return "no policy matches"
    if wanted(policy, facts.instance) is None:
        return f"policy {policy.name} only reports"
    if facts.morning is not None and not facts.instance.state.counts:
        return f"the machine is {facts.instance.state}; {_morning(facts.morning)}"
    if not facts.instance.state.counts:
        return f"the machine is {facts.instance.state}"
    if facts.gpus == 0:
        return "has no GPU"
    if quiet is not None and quiet.last_busy is not None and state.activity.value != "unknown":
        signal, value = quiet.last_busy
        return f"{state}: {signal.value} was last above its limit at {quiet.since.isoformat()[11:19]}"
    return f"{state}"


def _morning(morning: Morning) -> str:
    when = f"its hours {morning.hours} begin at {morning.ready_at:%Y-%m-%d %H:%M %Z}"
    if morning.refused is not None:
        return f"{when}, and it is not started: {morning.refused}"
    if morning.waits is not None:
        return f"{when}; {morning.waits}"
    return f"{when}, and it is started at {morning.begins_at:%H:%M %Z}"
