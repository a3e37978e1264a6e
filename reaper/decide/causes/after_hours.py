"""
Nominate a machine whose hours are over, or are about to be, as soon as it has been idle for the schedule's own short term.

It nominates its own wait before the end of hours, so that people are warned before it, and is never due before it. A machine
at work is not nominated, unless the schedule says in so many words that it is stopped at work; one of which nothing is known is
held by the guard `blind`. One that never had an agent is nominated only where the schedule says so.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from reaper.decide.causes.held import holds
from reaper.decide.facts import Facts
from reaper.decide.findings import nominate, span_text
from reaper.decide.wanted import wanted
from reaper.model.decision import Action, Finding
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import AFTER_HOURS

NAME = AFTER_HOURS


def after_hours(facts: Facts, now: datetime) -> Finding | None:
    """Declines within hours, for a machine that was started since they ended, and where nothing verified was ever heard."""
    policy, closing, quiet = facts.policy, facts.closing, facts.quiet
    if policy is None or closing is None or facts.instance.state is not InstanceState.RUNNING:
        return None
    action = wanted(policy, facts.instance)
    if action is None:
        return None
    if not action.stops:
        action = Action.STOP  # what is ended is not there in the morning: that is for the policy's own term, and not for the clock
    if facts.never_had_agent:
        return _nominated(facts, action, "it never had an agent", "no agent", None) if facts.stops_unseen else None
    if quiet is None or (not facts.gpus and not quiet.devices):
        return None
    own, age = facts.closing_span, now - quiet.until
    if own is not None and quiet.quiet_for >= own:
        what = "nothing held" if facts.unheld_for >= closing.hours.idle_for else f"{holds(facts)}, but nothing run"
        return _nominated(facts, action, f"{what} for {span_text(quiet.quiet_for)}", span_text(quiet.quiet_for), age)
    if facts.stops_at_work:
        return _nominated(facts, action, 'it is at work, and its schedule says if_busy = "stop"', f"quiet for {span_text(quiet.quiet_for)}", age)
    return None


def _nominated(facts: Facts, action: Action, what: str, value: str, age: timedelta | None) -> Finding:
    closing = facts.closing
    assert closing is not None
    finding = nominate(
        NAME, action, because=f"{closing.told()}; {what}", value=value, limit=span_text(closing.span), age=age,
        change="work, a snooze, the keep-until tag, or another schedule",
    )  # fmt: skip
    return replace(finding, not_before=closing.ends_at)
