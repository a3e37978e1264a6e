"""Keeps the fleet's turns of activity from cycle to cycle, and its open breakers in the store."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from reaper import log
from reaper.decide.breaker import Jump, Turn, jump, turned
from reaper.decide.facts import Facts
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Decision
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import Configuration, JobEndedTerms, Policy
from reaper.model.resource import ResourceId
from reaper.model.signal import Activity
from reaper.ports import Store

_log = log.get(__name__)

_FACT = "breakers"


class FleetWatch:
    """
    Turns live in memory, open breakers in the store. A machine seen for the first time, after a restart say, turned when
    its idle clock says so: a driver that fails the whole fleet is often rolled out together with us.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns: dict[ResourceId, Turn] = {}
        self._jumps = read_jumps(store)

    def step(
        self, facts: Mapping[ResourceId, Facts], decisions: Mapping[ResourceId, Decision], configuration: Configuration, now: datetime
    ) -> tuple[Jump, ...]:
        """The breakers open now, a new one included."""
        activities: dict[ResourceId, tuple[Activity, str | None]] = {}
        for resource, its in facts.items():
            if its.instance.state is InstanceState.RUNNING:
                agent = its.newest.agent if its.newest is not None else None
                activities[resource] = (decisions[resource].state.activity, agent)
        first = {resource: self._first(facts[resource], its) for resource, its in activities.items() if resource not in self._turns}
        self._turns = turned({**{resource: turn for resource, turn in first.items() if turn is not None}, **self._turns}, activities, now)
        self._jumps = read_jumps(self._store)  # a person may have closed one
        still = tuple(j for j in self._jumps if now < j.until)
        known = {resource for j in still for resource in j.machines}
        # They need their term and their wait to become due at all; blocked for less, the breaker would end just as it is needed.
        term = max((_longest(policy) for policy in configuration.policies), default=configuration.cycle)
        found = jump(tuple(self._turns.values()), configuration.budgets.breaker, now, term)
        if found is not None and not set(found.machines) <= known:
            still = (*still, found)
            _log.error("breaker opened", because=found.because, machines=[str(m) for m in found.machines], until=found.until.isoformat())
            self._store.append_audit(AuditEntry(now, AuditKind.BREAKER, "reaper", found.because, evidence={"machines": str(len(found.machines))}))
        if still != self._jumps:
            write_jumps(self._store, still)
        self._jumps = still
        return still

    @staticmethod
    def _first(facts: Facts, seen: tuple[Activity, str | None]) -> Turn | None:
        """The turn that happened before our first sight; None: it is BUSY, or never was as far as its reports reach."""
        activity, agent = seen
        if activity is Activity.BUSY or facts.quiet is None or facts.quiet.last_busy is None:
            return None
        return Turn(facts.instance.id, facts.quiet.since, Activity.BUSY, activity, agent)


def _longest(policy: Policy) -> timedelta:
    """From turning idle to due, whatever the cause."""
    terms, ended = policy.idle, policy.job_ended or JobEndedTerms(timedelta(0), policy.warn)
    return max(terms.held_for, terms.idle_for, ended.ended_for) + terms.idle_for + max(policy.warn.wait, ended.warn.wait)


def read_jumps(store: Store) -> tuple[Jump, ...]:
    text = store.fact(_FACT)
    if text is None:
        return ()
    return tuple(
        Jump(
            tuple(ResourceId.parse(m) for m in item["machines"]),
            datetime.fromisoformat(item["opened_at"]),
            datetime.fromisoformat(item["until"]),
            item["because"],
        )
        for item in json.loads(text)
    )


def write_jumps(store: Store, jumps: tuple[Jump, ...]) -> None:
    """An empty tuple closes every breaker."""
    items = [
        {"machines": [str(m) for m in j.machines], "opened_at": j.opened_at.isoformat(), "until": j.until.isoformat(), "because": j.because}
        for j in jumps
    ]
    store.set_facts({_FACT: json.dumps(items) if items else None})
