"""
The one reason that decides about a machine: a word to compare with, and a sentence for people.

It comes from the product's own decision; here it is only chosen and phrased.
"""

from dataclasses import dataclass
from datetime import datetime

from reaper.decide.correlate import busy_sign
from reaper.decide.engine import explain
from reaper.decide.facts import Facts
from reaper.decide.findings import span_text
from reaper.decide.guards import blind, stop_protected
from reaper.model.decision import Finding, FindingKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.signal import Activity, State


@dataclass(frozen=True, slots=True)
class Reason:
    """``word``: a guard's name, else the state; "" while nothing but its own countdown spares the machine."""

    word: str
    because: str


def decisive(facts: Facts, now: datetime) -> Reason:
    decision = explain(facts, now)
    if facts.instance.state is not InstanceState.RUNNING:
        return Reason(facts.instance.state.value, f"the machine is {facts.instance.state}")
    if decision.cause is not None:
        # a protection is for good, so it is the reason even where a hold came first; the costly read is made for the last few only
        objections = sorted(decision.objections, key=lambda finding: finding.kind is not FindingKind.PROTECT)
        first = next((f for f in objections if f.because != stop_protected.UNREAD), None)
        if first is not None:
            return _said(first)
        nominated = (f.because for f in decision.findings if f.kind is FindingKind.NOMINATE)
        return Reason("", next(nominated, decision.because))
    if decision.state.activity is Activity.BUSY:
        sign = busy_sign(facts, facts.newest) if facts.newest is not None else None
        return Reason(decision.state.value, f"{decision.state}: {sign}" if sign is not None else decision.because)
    if decision.state.activity is Activity.UNKNOWN:
        # what is missing first, then what follows from it
        first = min(decision.objections, key=lambda finding: finding.rule != blind.NAME, default=None)
        return _said(first) if first is not None else Reason(decision.state.value, decision.because)
    quiet, policy = facts.quiet, facts.policy
    if quiet is None or policy is None:
        return Reason(decision.state.value, decision.because)
    if decision.state is State.HELD:
        terms = f"nothing ran for {span_text(quiet.quiet_for)}, and held it may be for {span_text(policy.idle.held_for)}"
        return Reason(State.HELD.value, f"memory is taken on its GPU: {terms}")
    return Reason("", f"idle for {span_text(quiet.unheld_for)} of {span_text(policy.idle.idle_for)}")


def _said(finding: Finding) -> Reason:
    measured = finding.value is not None and finding.limit is not None
    return Reason(finding.rule, f"{finding.because} (limit {finding.limit})" if measured else finding.because)
