"""
Nominate a machine whose last job has ended, with its launcher, and on which nothing has happened since.

The end of a job is better evidence than silence, so its term is short and its warning its own. Everything that could
mean "not over yet" declines: a job or a process on a GPU that lives, a living launcher or one that could not be looked
for, any work since the end, a window that does not tell of jobs. It declines rather than holds, so that a machine whose
jobs cannot be seen keeps the longer terms of the other causes, no more and no less.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import nominate, span_text
from reaper.decide.wanted import wanted
from reaper.model.decision import Finding
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import JOB_ENDED

NAME = JOB_ENDED


def job_ended(facts: Facts, now: datetime) -> Finding | None:
    """Up to the newest window: whether that is fresh and covers the term is the guard `blind`'s question."""
    policy, quiet = facts.policy, facts.quiet
    if policy is None or policy.job_ended is None or quiet is None or facts.instance.state is not InstanceState.RUNNING:
        return None
    action = wanted(policy, facts.instance)
    if action is None:
        return None
    if not facts.gpus and not quiet.devices:
        return None
    end = facts.ended_job
    if end is None:
        return None
    return nominate(
        NAME,
        action,
        because=f"its job {end.job.id} ended {span_text(end.ended_for)} ago with its launcher, and nothing has run since",
        value=span_text(end.ended_for),
        limit=span_text(policy.job_ended.ended_for),
        age=now - quiet.until,
        change="another job, a process on a GPU, or work on CPU, disk or network",
    )
