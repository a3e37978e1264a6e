"""Who holds a machine's GPUs, which jobs its agent tells of, and who is on it: for `reaper why`, from its newest report."""

from datetime import timedelta
from typing import Any

from reaper.decide.at_work import forgotten_cell, words
from reaper.decide.findings import span_text
from reaper.model.presence import AtWork, Links
from reaper.model.signal import Holder, Job, Observation
from reaper.service.announce import person_text

GIB, MIB = 1 << 30, 1 << 20


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
        "at_work": None
        if seen is None or seen.presence is None
        else [
            {
                "kind": one.kind, "user": one.user, "uid": one.uid, "name": one.name, "idle_s": one.idle_s, "cpu_cores": one.cores,
                "io_bytes_per_s": one.io_bytes_per_s, "busy": one.busy, "busy_s": one.busy_s,
            }
            for one in seen.presence.at_work
        ],
        "at_work_unread": None if seen is None or seen.presence is None else list(seen.presence.unread),
        "links": None
        if seen is None or seen.links is None
        else {
            "whole": seen.links.whole, "addresses": list(seen.links.addresses), "peers": list(seen.links.peers), "ranks": list(seen.links.ranks),
            "world_size": seen.links.world_size, "master": seen.links.master,
        },
        "people": None if people is None else [{"user": p.user, "uid": p.uid, "how": p.how, "idle_s": p.idle_s} for p in people],
    }


def lines(seen: Observation | None) -> list[str]:
    if seen is None:
        return []
    told = [f"job {_job(job)}" for job in seen.jobs or ()]
    told += [f"held: {gpu.uuid} by {_holder(holder)}" for gpu in seen.gpus for holder in gpu.holders or ()]
    told += [f"on it: {person_text(person)}" for person in seen.people or ()]
    if seen.presence is not None:
        told += [f"at work: {_at_work(one)}" for one in seen.presence.at_work]
        told += [f"at work: cannot be seen: {what}" for what in seen.presence.unread]
    return [*told, *_links(seen.links)]


def _at_work(one: AtWork) -> str:
    parts = [f"{words(one)} of {one.user}" if one.user is not None else words(one)]
    if one.idle_s is not None:
        parts.append(f"typed {_span(one.idle_s)} before the report's end")
    if one.busy is not None:
        since = f" for {_span(one.busy_s)}" if one.busy and one.busy_s else ""
        parts.append(f"runs a cell{since}" if one.busy else "runs no cell")
        if forgotten_cell(one):
            parts.append("silent for so long that it no longer counts as work")
    if one.cores is not None:
        parts.append(f"{one.cores:.2g} cores")
    if one.io_bytes_per_s:
        parts.append(f"{one.io_bytes_per_s / MIB:,.2g} MiB/s")
    return ", ".join(parts)


def _links(links: Links | None) -> list[str]:
    if links is None:
        return []
    told = []
    if links.peers:
        told.append(f"its GPU processes are connected to {', '.join(links.peers)}")
    if links.ranks and links.world_size is not None:
        ranks = ", ".join(map(str, links.ranks))
        told.append(f"rank {ranks} of {links.world_size}" + (f", master {links.master}" if links.master is not None else ""))
    if not links.whole:
        told.append("not all connections of its GPU processes can be seen")
    return told


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
