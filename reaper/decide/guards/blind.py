"""
Hold what cannot be seen well enough: IDLE needs every GPU, most of the time, from a voice we believe, just now.

Missing is not zero. Each check here is one way of not knowing.
"""

from dataclasses import replace
from datetime import datetime

from reaper.decide.correlate import misfit, state_of
from reaper.decide.facts import MOST_AHEAD, Facts, silent_for
from reaper.decide.findings import hold, span_text
from reaper.model.decision import Finding
from reaper.model.policy import AFTER_HOURS
from reaper.model.signal import Activity

NAME = "blind"

COVERAGE = 0.90


def blind(facts: Facts, now: datetime) -> Finding | None:
    """The first reason why the machine's state is not known; None when it is."""
    return _listing(facts, now) or _voice(facts, now) or _devices(facts) or _coverage(facts) or _whole(facts, now)


def _listing(facts: Facts, now: datetime) -> Finding | None:
    age = now - facts.listed_at
    if facts.place_failed is not None:
        return hold(NAME, f"its place could not be listed: {facts.place_failed}", age=age, change="a listing that answers")
    if age < -MOST_AHEAD:
        return hold(NAME, "listed in the future: a clock was set back", age=age, change="a fresh listing")
    if age > facts.stale_after:
        return hold(NAME, f"listed {span_text(age)} ago", age=age, limit=span_text(facts.stale_after), change="a fresh listing")
    return None


def _voice(facts: Facts, now: datetime) -> Finding | None:
    if facts.distrust is not None:
        return hold(NAME, facts.distrust, change="one verified agent speaking for it")
    if facts.quiet is None:
        if facts.newest is not None:
            return hold(NAME, "no verified report", change="a token of its own for its agent")
        finding = hold(NAME, "silent agent" if facts.agent_seen else "never had an agent", change="reports from an agent")
        # A schedule that says so stops what never had an agent: there is nothing that could speak, and its people were warned.
        return replace(finding, exempts=(AFTER_HOURS,)) if facts.stops_unseen else finding
    if facts.newest is None:
        return hold(NAME, "its newest report is not known", change="a new report")
    silence = silent_for(facts, now)
    if silence is not None:
        return hold(NAME, f"silent agent: newest report ended {span_text(silence)} ago", age=silence, change="a new report")
    if facts.quiet.until - now > MOST_AHEAD or facts.newest.ended_at - now > MOST_AHEAD:
        return hold(NAME, "its newest report ended in the future: a clock was set back", change="a new report")
    if not facts.newest.verified:
        return hold(NAME, "the newest report is of an unverified voice", change="a token of its own for its agent")
    return None


def _devices(facts: Facts) -> Finding | None:
    newest, quiet = facts.newest, facts.quiet
    if newest is None or quiet is None:
        return None
    if newest.sampler not in ("ok", "no-gpu"):
        return hold(NAME, f"the agent cannot sample: {newest.because or newest.sampler}", change="a working sampler")
    # The cloud's count wins after a resize; the agent's memory notices a card that fell off where the cloud knows none.
    count, whose = facts.instance.gpus, f"a {facts.instance.type} has"
    if count is None:
        count, whose = newest.expected_gpus, "the agent expects"
    if count is not None and quiet.devices < count:
        return hold(NAME, f"{quiet.devices} of {count} GPUs readable", limit=f"{whose} {count}", change="all GPUs readable")
    if count is not None and quiet.devices > count:
        return hold(NAME, f"reports {quiet.devices} GPUs where {whose} {count}", change="a report that fits the inventory")
    stranger = misfit(facts, newest)
    if stranger is not None:
        return hold(
            NAME, f"reports {stranger} where a {facts.instance.type} has {facts.instance.gpu_model}", change="a report that fits the inventory"
        )
    if facts.gpus is None:
        return hold(NAME, "how many GPUs it should have is not known", change="a readable instance type")
    return None


def _coverage(facts: Facts) -> Finding | None:
    span, quiet = facts.span, facts.quiet
    if span is None or quiet is None or quiet.quiet_for < span:
        return None  # no cause has its term yet
    share, device = quiet.covered.get(span, (0.0, "nothing"))
    if not share >= COVERAGE:  # written so that NaN is not enough
        return hold(NAME, f"{device} covered {share:.0%} of the last {span_text(span)}", value=f"{share:.0%}", limit=f"{COVERAGE:.0%}")
    return None


def _whole(facts: Facts, now: datetime) -> Finding | None:
    """What is shown as unknown is never acted on, whatever the reasons above forgot."""
    state = state_of(facts, now)
    if state.activity is Activity.UNKNOWN:
        return hold(NAME, f"what it does now is not known ({state})", change="a report that shows every GPU")
    return None
