"""From decisions and marks to a plan: what is admitted, what is withheld, and by what. Withholding never touches a mark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reaper.decide import budget as budgets
from reaper.decide.breaker import Jump
from reaper.model.decision import Action, Decision, Verdict
from reaper.model.kinds.instance import Instance
from reaper.model.mark import Mark, Stage
from reaper.model.plan import Debit, Plan, PlannedAction, Withheld
from reaper.model.policy import Configuration, Mode, Policy, Scope


@dataclass(frozen=True, slots=True)
class Candidate:
    """One resource with its decision. ``look``: why the last look is not taken yet; None: taken. ``place``: of starts, the order."""

    instance: Instance
    decision: Decision
    policy: Policy | None = None
    mark: Mark | None = None
    gang: str | None = None
    look: str | None = None
    place: int = 0

    @property
    def starts(self) -> bool:
        """Takes nothing away, and is due as soon as it is nominated."""
        return self.decision.verdict is Verdict.ACT and self.decision.action is Action.START

    @property
    def ready(self) -> bool:
        return self.decision.verdict is Verdict.ACT and self.mark is not None and self.mark.stage is Stage.DUE and self.look is None


_VERBS = {
    Action.SUSPEND: ("stop",),
    Action.HIBERNATE: ("stop",),
    Action.STOP_AND_SNAPSHOT: ("stop", "snapshot"),
    Action.TERMINATE: ("stop", "snapshot", "terminate"),
}


def verbs_of(action: Action) -> tuple[str, ...]:
    """The verbs of [scope] an action needs, in the order in which it uses them."""
    return _VERBS.get(action, (action.value,))


def verb_missing(action: Action, scope: Scope) -> str | None:
    """The first verb that an action needs and [scope] does not name; None: all are named."""
    return next((verb for verb in verbs_of(action) if not scope.given or verb not in scope.verbs), None)


def make(
    id: str,
    now: datetime,
    configuration: Configuration,
    candidates: Sequence[Candidate],
    debits: Sequence[Debit],
    running: int,
    jumps: Sequence[Jump] = (),
    stopped_by: tuple[str, str] | None = None,
    start_debits: Sequence[Debit] = (),
) -> Plan:
    """
    The plan of one cycle. ``running``: running machines in scope; ``stopped_by``: what withholds everything that takes away ("brake", "configuration"), and why.

    Ready groups (a machine, or all running members of a gang) are admitted in the order in which they became due.
    """
    planned: list[PlannedAction] = []
    withheld: list[Withheld] = []
    taken: dict[str, budgets.Ask] = {}
    for group in _groups(candidates):
        ready = [c for c in group if c.ready]
        if not ready:
            continue
        prices = [budgets.price_of(c.instance.type, configuration.prices, c.instance.hourly_usd) for c in ready]
        asked = budgets.asks([(c.decision.action, price) for c, price in zip(ready, prices, strict=True)])
        by, because = _withhold(group, ready, configuration, jumps, now, stopped_by)
        if by is None:
            refusal = budgets.refused(asked, configuration.budgets, debits, now, running, taken)
            refusal = refusal or budgets.refused_this_cycle(asked, configuration.budgets, taken)
            by, because = ("budget", refusal) if refusal else (None, "")
        if by is not None:
            withheld += [_withheld(c, by, because or "") for c in ready]
            continue
        taken = budgets.together(taken, asked)
        planned += [_planned(c, price) for c, price in zip(ready, prices, strict=True)]
    starting, waiting = _starts(candidates, configuration, start_debits, now, running, stopped_by)
    planned += starting
    withheld += waiting
    return Plan(
        id=id,
        made_at=now,
        mode=configuration.mode,
        configuration_digest=configuration.digest,
        actions=tuple(planned),
        withheld=tuple(withheld),
        notes=_notes(configuration, candidates, jumps, now, stopped_by),
    )


def _starts(
    candidates: Sequence[Candidate], configuration: Configuration, debits: Sequence[Debit], now: datetime, running: int, stopped_by: tuple[str, str] | None
) -> tuple[list[PlannedAction], list[Withheld]]:
    """In their order, at the rate of their own budget. A refused configuration takes nothing away and so holds no start up; the kill switch does."""
    planned: list[PlannedAction] = []
    withheld: list[Withheld] = []
    applying, taken = budgets.limits(configuration.budgets.starts, debits, now, running), budgets.Ask(0, 0.0)
    for candidate in sorted((c for c in candidates if c.starts), key=lambda c: (c.place, c.instance.id)):
        by, because = _withhold_start(candidate, configuration, stopped_by)
        if by is None:
            refusal = budgets.refusal(budgets.Ask(1), applying, taken) or budgets.per_cycle(configuration.budgets.starts, budgets.Ask(1), taken)
            by, because = ("budget", refusal) if refusal else (None, "")
        if by is not None:
            withheld.append(_withheld(candidate, by, because))
            continue
        taken = budgets.Ask(taken.count + 1, 0.0)
        planned.append(_planned(candidate, None))
    return planned, withheld


def _withhold_start(candidate: Candidate, configuration: Configuration, stopped_by: tuple[str, str] | None) -> tuple[str | None, str]:
    if stopped_by is not None and stopped_by[0] == "brake":
        return stopped_by
    if configuration.mode is not Mode.ENFORCE:
        return "mode", "mode is observe"
    if candidate.policy is None or candidate.policy.mode is not Mode.ENFORCE:
        return "mode", f"policy {candidate.policy.name if candidate.policy else '?'} is in observe"
    verb = verb_missing(Action.START, configuration.scope)
    return ("scope", f"[scope] verbs do not name {verb}") if verb is not None else (None, "")


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Gangs together, everything else alone; the earliest due first, then by id so that the order is always the same."""
    by_key: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.instance.state.counts:
            by_key.setdefault(candidate.gang or str(candidate.instance.id), []).append(candidate)

    def due(group: list[Candidate]) -> tuple[str, str]:
        moments = [c.mark.due_at.isoformat() for c in group if c.mark is not None and c.mark.due_at is not None]
        return (min(moments, default="~"), str(min(c.instance.id for c in group)))

    return sorted(by_key.values(), key=due)


def _withhold(
    group: Sequence[Candidate], ready: Sequence[Candidate], configuration: Configuration, jumps: Sequence[Jump], now: datetime, stopped_by: tuple[str, str] | None
) -> tuple[str | None, str]:
    if stopped_by is not None:
        return stopped_by
    if configuration.mode is not Mode.ENFORCE:
        return "mode", "mode is observe"
    for candidate in ready:
        if candidate.policy is None or candidate.policy.mode is not Mode.ENFORCE:
            return "mode", f"policy {candidate.policy.name if candidate.policy else '?'} is in observe"
        verb = verb_missing(candidate.decision.action, configuration.scope)
        if verb is not None:
            return "scope", f"[scope] verbs do not name {verb}"
        for open_jump in jumps:
            if open_jump.blocks(candidate.instance.id, now):
                return "breaker", open_jump.because
    waiting = [c for c in group if not c.ready]
    if waiting:
        names = ", ".join(f"{c.instance.title} ({c.look or c.decision.because})" for c in waiting[:3])
        return "gang", f"goes with its job whole, and not all of it is ready: {names}"
    return None, ""


def _planned(candidate: Candidate, price: float | None) -> PlannedAction:
    decision = candidate.decision
    return PlannedAction(
        resource=candidate.instance.id, name=candidate.instance.title, action=decision.action, cause=decision.cause or "",
        policy=decision.policy or "", because=decision.because, gang=candidate.gang, usd_per_hour=0.0 if candidate.instance.reservation is not None else price,  # reserved capacity is paid for either way
    )  # fmt: skip


def _withheld(candidate: Candidate, by: str, because: str) -> Withheld:
    decision = candidate.decision
    return Withheld(
        resource=candidate.instance.id, name=candidate.instance.title, action=decision.action, cause=decision.cause or "",
        policy=decision.policy or "", by=by, because=because,
    )  # fmt: skip


def _notes(configuration: Configuration, candidates: Sequence[Candidate], jumps: Sequence[Jump], now: datetime, stopped_by: tuple[str, str] | None) -> tuple[str, ...]:
    notes = [f"breaker open: {j.because}" for j in jumps if now < j.until]
    if stopped_by is not None:
        notes.append(f"nothing is taken away: {stopped_by[1]}")
    if configuration.budgets.stops.usd_per_hour is not None:
        unpriced = sorted({c.instance.type for c in candidates if budgets.price_of(c.instance.type, configuration.prices, c.instance.hourly_usd) is None})
        if unpriced:
            notes.append(f"the dollar budget does not apply to types without a price: {', '.join(unpriced)}")
    return tuple(notes)
