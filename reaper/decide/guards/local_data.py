"""
Hold a machine whose local disks a stop would wipe, unless its policy lets their content go and the newest report bears it out.

"hold": always. "if-empty": every local disk is mounted whole and at most 2 % used, or seen in a folder of ``local_scratch``,
and none was written to within the term. "discard": whatever is on them goes; a write within the term is still somebody at work.
"""

import posixpath
from datetime import datetime, timedelta

from reaper.decide.correlate import figure
from reaper.decide.facts import HOLE_PERIODS, MOST_AHEAD, Facts
from reaper.decide.findings import hold, span_text
from reaper.model.decision import Finding
from reaper.model.policy import Policy
from reaper.model.signal import LocalDisk, Observation

NAME = "local-data"

EMPTY_AT_MOST = 0.02
"""A fresh file system's own bookkeeping on a disk of terabytes is about one percent."""

PERIOD = timedelta(minutes=1)
"""The report period where the idle clock tells none."""


def local_data(facts: Facts, now: datetime) -> Finding | None:
    """Whether a type has local disks is the inventory's to say; a report that shows one where there should be none counts as well."""
    instance, policy, newest = facts.instance, facts.policy, facts.newest
    if instance.local_store is None:
        return hold(NAME, f"whether {instance.type} has local disks is not known", change="a readable instance type")
    if not instance.local_store and not (newest is not None and newest.disks):
        return None
    word = policy.local_nvme if policy is not None else "hold"
    if word not in ("if-empty", "discard"):
        return hold(NAME, f"{instance.type} has local disks that a stop wipes", change='local_nvme = "if-empty" in its policy')
    age = now - newest.ended_at if newest is not None else None
    why = _stale(facts, now) if word == "if-empty" else None
    why = why or on_disks(facts)
    return hold(NAME, f"a stop wipes its local disks: {why}", age=age, change="local disks that are empty, mounted and not written to") if why else None


def on_disks(facts: Facts) -> str | None:
    """
    Why what is on the local disks by the newest report must stay, under a policy that lets it go at all; None: nothing
    speaks against it. How old the report may be is the asker's to judge.
    """
    policy, newest = facts.policy, facts.newest
    if policy is None or newest is None:
        return "no report tells what is on them"
    term = facts.span or policy.idle.idle_for
    if policy.local_nvme == "discard":
        written = [_written(disk, term, unknown=None) for disk in newest.disks or ()]
        return next((why for why in written if why is not None), None)
    return _uncounted(facts, newest) or next((why for disk in newest.disks or () if (why := _not_empty(disk, policy, term)) is not None), None)


def _stale(facts: Facts, now: datetime) -> str | None:
    newest = facts.newest
    if newest is None:
        return "no report tells what is on them"
    if not newest.verified:
        return "the newest report is of an unverified voice"
    age, period = now - newest.ended_at, facts.quiet.period if facts.quiet is not None else PERIOD
    if not -MOST_AHEAD <= age <= HOLE_PERIODS * period:
        return f"the newest report about them ended {span_text(age)} ago" if age > timedelta(0) else "the newest report ended in the future"
    return None


def _uncounted(facts: Facts, newest: Observation) -> str | None:
    """Whether every disk that the type brings is among those reported; where the inventory gives no number, one at least."""
    if newest.disks is None:
        return "its agent does not tell what is on them (one too old, or without the right to look)"
    expected = max(facts.instance.local_disks if facts.instance.local_disks is not None else 1, 1)
    found = len({disk.device for disk in newest.disks})
    if found < expected:
        least = "at least " if facts.instance.local_disks is None else ""
        return f"{found} of {least}{expected} reported"
    return None


def _not_empty(disk: LocalDisk, policy: Policy, term: timedelta) -> str | None:
    if disk.use not in ("mounted", "member"):
        return f"what is on {disk.device} is not known: {disk.use}"
    if not _scratch(disk.mount, policy.local_scratch):
        if disk.use != "mounted":
            return f"{disk.device} is a member of RAID, LVM or a swap" + (f", seen at {disk.mount}" if disk.mount else "")
        used = figure(disk.used)
        if used is None:
            return f"how full {disk.device} is cannot be read"
        if not used <= EMPTY_AT_MOST:
            return f"{disk.device} is {used:.1%} used, more than {EMPTY_AT_MOST:.0%}" + (f", at {disk.mount}" if disk.mount else "")
    return _written(disk, term, unknown=f"when {disk.device} was last written to is not known yet")


def _written(disk: LocalDisk, term: timedelta, *, unknown: str | None) -> str | None:
    age = figure(disk.written_age_s)
    if age is None:
        return unknown
    if age < term.total_seconds():
        return f"{disk.device} was written to within the last {span_text(term)}"
    return None


def _scratch(mount: str | None, folders: tuple[str, ...]) -> bool:
    """Whether all that is seen at ``mount`` lies in one of the folders. A path that is not in its plain form is not compared."""
    if mount is None or not mount.startswith("/") or mount.startswith("//") or posixpath.normpath(mount) != mount:
        return False
    plain = [folder.rstrip("/") for folder in folders]
    return any(folder and (mount == folder or mount.startswith(f"{folder}/")) for folder in plain)
