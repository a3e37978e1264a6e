"""The end of a machine's last job, from its newest window and its idle clock; None wherever that is not certain."""

from dataclasses import dataclass
from datetime import timedelta

from reaper.model.signal import Job, Observation, Quiet

TAIL_PERIODS = 3
"""A job's own last window is busy, and what it wrote reaches the disk a little later. Work after that is somebody else's."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The newest job that ended, and how long before the end of the newest window."""

    job: Job
    ended_for: timedelta


def job_end(newest: Observation | None, quiet: Quiet | None) -> JobEnd | None:
    """
    None unless that window is verified and no older than what the clock counts, every job it tells of is over, no process
    is on any GPU, nothing is held, and the machine has been quiet since the end but for the job's own tail.
    """
    if newest is None or quiet is None or not newest.verified or newest.ended_at < quiet.until:
        return None
    if not newest.jobs or not all(job.over for job in newest.jobs):
        return None
    if not newest.gpus or any(gpu.processes != 0 or gpu.held for gpu in newest.gpus):
        return None
    last = min(newest.jobs, key=_age)
    ended_for = timedelta(seconds=_age(last))
    quiet_for = min(quiet.quiet_for, quiet.unheld_for)
    if quiet_for + TAIL_PERIODS * quiet.period < ended_for:
        return None
    # The tail was busy, too: the term counts from the later of both.
    return JobEnd(last, min(ended_for, quiet_for))


def _age(job: Job) -> float:
    return job.ended_age_s if job.ended_age_s is not None else 0.0
