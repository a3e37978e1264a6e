"""
Nominate a machine whose GPUs have been quiet for the policy's term, with nothing held on them and no launcher between two runs.

Up to the newest verified window: whether that is fresh and covers enough is the guard
`blind`'s question, so that a blind spot pauses a countdown and does not forget it.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import nominate, span_text
from reaper.decide.wanted import wanted
from reaper.model.decision import Finding
from reaper.model.kinds.instance import InstanceState

NAME = "gpu-idle"


def gpu_idle(facts: Facts, now: datetime) -> Finding | None:
    """Declines for a machine without GPUs, without a policy that stops, or without a verified window."""
    policy, quiet = facts.policy, facts.quiet
    if policy is None or quiet is None or facts.instance.state is not InstanceState.RUNNING:
        return None
    action = wanted(policy, facts.instance)
    if action is None:
        return None
    if not facts.gpus and not quiet.devices:
        return None
    idle_for = min(facts.unheld_for, quiet.quiet_for)
    if idle_for < policy.idle.idle_for:
        return None
    return nominate(
        NAME,
        action,
        because=f"every GPU at or below {policy.idle.gpu_at_most:.0%} and nothing held for {span_text(idle_for)}",
        value=span_text(idle_for),
        limit=span_text(policy.idle.idle_for),
        age=now - quiet.until,
        change=f"any GPU above {policy.idle.gpu_at_most:.0%}, a process on a GPU, or work on CPU, disk or network",
    )
