"""
The fleet breaker: when too many machines turn idle or unknown at once, the fleet is probably not what changed.

It opens for the machines of that jump only, for their own term, or until a person closes
it. Fewer than three machines have no breaker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reaper.model.policy import BreakerTerms
from reaper.model.resource import ResourceId
from reaper.model.signal import Activity

SMALLEST_FLEET = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """
    One machine's last turn: since when it is not BUSY, or BUSY again. ``was``: what it was just before that; ``now``: what
    it is; ``agent``: its agent's version.
    """

    resource: ResourceId
    at: datetime
    was: Activity
    now: Activity
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Jump:
    """An open breaker: which machines, since when, until when, and why."""

    machines: tuple[ResourceId, ...]
    opened_at: datetime
    until: datetime
    because: str

    def blocks(self, resource: ResourceId, now: datetime) -> bool:
        return now < self.until and resource in self.machines


def turned(before: Mapping[ResourceId, Turn], activities: Mapping[ResourceId, tuple[Activity, str | None]], now: datetime) -> dict[ResourceId, Turn]:
    """
    The newest turn of every machine. One seen for the first time has not turned from anything.

    From unknown to idle (or back) is no new turn: an agent that is restarted with a blind driver falls silent first, and
    its machine was still BUSY just before.
    """
    after: dict[ResourceId, Turn] = {}
    for resource, (activity, agent) in activities.items():
        last = before.get(resource)
        if last is None:
            after[resource] = Turn(resource, now, Activity.UNKNOWN, activity, agent)
        elif last.now is activity or Activity.BUSY not in (last.now, activity):
            after[resource] = replace(last, now=activity, agent=agent if agent is not None else last.agent)
        else:
            after[resource] = Turn(resource, now, last.now, activity, agent)
    return after


def jump(turns: Sequence[Turn], terms: BreakerTerms | None, now: datetime, term: timedelta) -> Jump | None:
    """
    Whether a jump stands now, over the whole fleet or over one agent version. ``term``: how long its machines stay blocked.

    Only what was BUSY just before counts: scheduled stops and start-up never open it.
    """
    if terms is None or len(turns) < SMALLEST_FLEET:
        return None
    groups: dict[str, list[Turn]] = {"the fleet": list(turns)}
    for turn in turns:
        if turn.agent is not None:
            groups.setdefault(f"agents of version {turn.agent}", []).append(turn)
    machines: set[ResourceId] = set()
    reasons: list[str] = []
    for name, members in groups.items():
        if len(members) < SMALLEST_FLEET:
            continue
        fell = [t for t in members if t.was is Activity.BUSY and t.now is not Activity.BUSY and now - t.at <= terms.within]
        if len(fell) >= terms.at_least and len(fell) >= terms.share * len(members):
            machines.update(t.resource for t in fell)
            reasons.append(f"{len(fell)} of {len(members)} of {name} turned idle or unknown within {terms.within}")
    # All groups in one: two versions that fall together must not hide one another.
    return Jump(tuple(sorted(machines)), now, now + term, "; ".join(reasons)) if machines else None
