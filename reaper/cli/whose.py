"""Who holds a machine's GPUs, which jobs its agent tells of, and who is on it: for `reaper why`, from its newest report."""

from datetime import timedelta
from typing import Any

from reaper.decide.findings import span_text
from reaper.model.signal import Holder, Job, Observation
from reaper.service.announce import person_text

GIB = 1 << 30


def document(seen: Observation | None) -> dict[str, Any]:
    """Null is "not known"; an empty list is "looked, none"."""
    jobs, people = (seen.jobs, seen.people) if seen is not None else (None, None)
    return {
        "jobs": None
        if jobs is None
        else [{"id": j.id, "ended_age_s": j.ended_age_s, "launcher": j.launcher, "launcher_known": j.launcher_known, "over": j.over} for j in jobs],
        "holders": None
        if seen is None
        else [
            {"gpu": gpu.uuid, "pid": h.pid, "name": h.name, "user": h.user, "mem_bytes": h.mem_bytes, "since_s": h.since_s}
            for gpu in seen.gpus
            for h in gpu.holders or ()
        ],
        "people": None if people is None else [{"user": p.user, "uid": p.uid, "how": p.how, "idle_s": p.idle_s} for p in people],
    }


def lines(seen: Observation | None) -> list[str]:
    if seen is None:
        return []
    told = [f"job {_job(job)}" for job in seen.jobs or ()]
    told += [f"held: {gpu.uuid} by {_holder(holder)}" for gpu in seen.gpus for holder in gpu.holders or ()]
    return [*told, *(f"on it: {person_text(person)}" for person in seen.people or ())]


def _job(job: Job) -> str:
    if job.ended_age_s is None:
        return f"{job.id}: a process of it is on a GPU"
    ended = f"{job.id}: last GPU process ended {_span(job.ended_age_s)} before the report's end"
    if job.launcher is not None:
        return f"{ended}; its launcher {job.launcher} lives, so it has not ended"
    if job.launcher_known is None:
        return f"{ended}; whether it has ended shows in a minute"
    return f"{ended}, and no launcher of it lives" if job.launcher_known else f"{ended}; whether a launcher of it lives cannot be seen"


def _holder(holder: Holder) -> str:
    who = f"{holder.name or 'a process we cannot see'} (pid {holder.pid})"
    user = f" of {holder.user}" if holder.user is not None else ""
    memory = f", {holder.mem_bytes / GIB:.1f} GiB" if holder.mem_bytes is not None else ""
    since = f", for {_span(holder.since_s)} with nothing running" if holder.since_s is not None else ""
    return who + user + memory + since


def _span(seconds: float) -> str:
    return span_text(timedelta(seconds=seconds))
