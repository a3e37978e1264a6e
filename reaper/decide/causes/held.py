"""
Nominate a machine whose GPUs are quiet while something is held on them, after a longer term of its own.

A forgotten notebook and a loaded model look alike; the longer term is the difference. So do a sweep that sleeps between two of
its trials and a launcher that hangs.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import nominate, span_text
from reaper.decide.wanted import wanted
from reaper.model.decision import Finding
from reaper.model.kinds.instance import InstanceState

NAME = "held"


def held(facts: Facts, now: datetime) -> Finding | None:
    """Declines where `gpu-idle` already has its shorter term, and wherever that one declines for other reasons."""
    policy, quiet = facts.policy, facts.quiet
    if policy is None or quiet is None or facts.instance.state is not InstanceState.RUNNING:
        return None
    action = wanted(policy, facts.instance)
    if action is None:
        return None
    if not facts.gpus and not quiet.devices:
        return None
    if facts.unheld_for >= policy.idle.idle_for or quiet.quiet_for < policy.idle.held_for:
        return None
    return nominate(
        NAME,
        action,
        because=f"{holds(facts)}, and nothing run for {span_text(quiet.quiet_for)}",
        value=span_text(quiet.quiet_for),
        limit=span_text(policy.idle.held_for),
        age=now - quiet.until,
        change=f"any GPU above {policy.idle.gpu_at_most:.0%}, or work on CPU, disk or network",
    )


def holds(facts: Facts) -> str:
    if facts.launcher is not None:
        return f"{facts.launcher} lives, which could start its next job"
    return "memory or a process held on the GPUs"
