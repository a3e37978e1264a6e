"""Tells people at work, before hours end, what will happen with their machine then. Once for each end of hours."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from reaper.decide.causes import after_hours
from reaper.decide.facts import Facts
from reaper.decide.findings import span_text
from reaper.decide.guards import protected, snoozed
from reaper.decide.wanted import wanted
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Decision, FindingKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import AFTER_HOURS, Configuration, Mode, Policy, owner_of
from reaper.model.resource import ResourceId
from reaper.ports import Message, Store
from reaper.service.announce import Announcer, on_it

_FACT = "hours-told"

_KEPT_FOR = timedelta(days=14)

EVENT = "hours-end"


def tell(store: Store, announcer: Announcer, facts: Mapping[ResourceId, Facts], decisions: Mapping[ResourceId, Decision], configuration: Configuration, now: datetime) -> int:
    """How many were told. In observe nobody is: nothing will happen. What no channel accepts is tried again next cycle."""
    ends = [its for id, its in facts.items() if _concerned(its, decisions[id], configuration, now)]
    if not ends:
        return 0
    text = store.fact(_FACT)
    told: dict[str, str] = dict(json.loads(text)) if text is not None else {}
    entries = []
    for its in ends:
        closing, policy = its.closing, its.policy
        if closing is None or closing.ends_at is None or policy is None or told.get(str(its.instance.id)) == closing.ends_at.isoformat():
            continue
        because = f"{closing.told()}; {_then(its)}"
        if announcer.send(_message(its, policy, because, closing.ends_at, now), policy.warn_for(AFTER_HOURS).via) is None:
            continue
        told[str(its.instance.id)] = closing.ends_at.isoformat()
        entries.append(AuditEntry(now, AuditKind.WARNED, "reaper", because, its.instance.id, evidence={"policy": policy.name, "cause": AFTER_HOURS, "event": EVENT}))
    if entries:
        store.append_audit(*entries)
        store.set_facts({_FACT: json.dumps(dict(_recent(told.items(), now)))})
    return len(entries)


def _concerned(facts: Facts, decision: Decision, configuration: Configuration, now: datetime) -> bool:
    """Hours are about to end, something would be stopped then, and no warning of a stop is on its way already."""
    closing, policy = facts.closing, facts.policy
    if closing is None or closing.off or policy is None or len(facts.policies) != 1 or facts.instance.state is not InstanceState.RUNNING:
        return False
    if configuration.mode is not Mode.ENFORCE or policy.mode is not Mode.ENFORCE or wanted(policy, facts.instance) is None:
        return False
    if facts.ineligible is not None or facts.claimed_by is not None or facts.never_had_agent:
        return False
    if any(guard(facts, now) is not None for guard in (protected.protected, snoozed.snoozed)):
        return False
    return not any(f.rule == after_hours.NAME and f.kind is FindingKind.NOMINATE for f in decision.findings)


def _then(facts: Facts) -> str:
    hours = facts.closing.hours if facts.closing is not None else None
    term = span_text(hours.idle_for) if hours is not None else "a while"
    return f"as long as it is at work it stays, and once it has been idle for {term} it is warned again and stopped"


def _message(facts: Facts, policy: Policy, because: str, ends_at: datetime, now: datetime) -> Message:
    machine = facts.instance
    return Message(
        event=EVENT, resource=machine.id, name=machine.title, action=policy.action, because=because, at=now, policy=policy.name,
        owner=owner_of(machine, policy.owner), due_at=ends_at, keep_it=f'reaper snooze {machine.id} --for 4h --reason "..."', people=on_it(facts.newest),
    )  # fmt: skip


def _recent(told: Iterable[tuple[str, str]], now: datetime) -> Iterable[tuple[str, str]]:
    return ((id, at) for id, at in told if datetime.fromisoformat(at) > now - _KEPT_FOR)
