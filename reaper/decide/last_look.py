"""
The last look: once due, one more report, of a window that began after that, has to say IDLE.

Whatever began between the warning and the stop is seen here or not at all.
"""

from datetime import datetime

from reaper.decide.correlate import busy_sign, state_of
from reaper.decide.facts import MOST_AHEAD, Facts
from reaper.decide.guards.local_data import on_disks
from reaper.model.mark import Mark, Stage
from reaper.model.policy import AFTER_HOURS
from reaper.model.signal import Activity

HOOK_OK = "ok"


def last_look(mark: Mark, facts: Facts, now: datetime, *, observe: bool = False) -> str | None:
    """
    Why it may not act yet; None when the newest window is the last look.

    ``observe``: nobody is told and nothing is stopped, so any idle window begun after due will do, however old, and a
    pre-stop hook has nothing to say.
    """
    if mark.stage is not Stage.DUE or mark.due_at is None:
        return "its wait is not served"
    if mark.not_before is not None and now < mark.not_before:
        return f"its hours end at {mark.not_before:%H:%M %Z}"
    if mark.cause == AFTER_HOURS and facts.stops_unseen:
        return None  # nothing will ever report: that the cloud shows it running, read right before the call, is the last look
    seen, quiet, policy = facts.newest, facts.quiet, facts.policy
    if seen is None or quiet is None or policy is None or not seen.verified:
        return "no verified report"
    if seen.started_at < mark.due_at:
        return f"waiting for a report whose window began after {mark.due_at:%H:%M:%S %Z}"
    at_work = mark.cause == AFTER_HOURS and facts.stops_at_work  # its schedule says so, in so many words
    sign = busy_sign(facts, seen)
    if not at_work and (sign is not None or quiet.since > seen.started_at):
        return f"the newest report shows work: {sign or 'not quiet for the whole window'}"
    if not observe and now - seen.ended_at > quiet.period:
        return f"the newest report ended {(now - seen.ended_at).total_seconds():.0f} s ago, over one report period"
    if seen.ended_at - now > MOST_AHEAD:
        return "the newest report ended in the future: a clock was set back"
    # No sign of work is not yet idle: what the window could not read shows no sign either.
    state = state_of(facts, seen.ended_at if observe else now)
    if state.activity is not Activity.IDLE and not (at_work and state.activity is Activity.BUSY):
        return f"the newest report does not show it idle: {state}"
    if not observe and seen.ended_at - seen.started_at < 0.5 * quiet.period:
        return "the newest window was cut short: too little was seen in it"
    local = on_disks(facts) if facts.instance.local_store is not False or seen.disks else None
    if local is not None:
        return f"a stop wipes its local disks: {local}"
    if observe:
        return None  # no agent was told, so no hook has run
    if seen.hook_installed and seen.hook_outcome != HOOK_OK and now - mark.due_at < policy.hook_veto_up_to:
        return f"its pre-stop hook said {seen.hook_outcome or 'nothing'}"
    return None
