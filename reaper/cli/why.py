"""
`reaper why`: everything that decides about one machine, from the store alone.

The rules are pure, so they are asked again here, all of them, with what the store knows. No cloud is asked and no
credentials are needed; the one thing that this leaves open (stop protection) is said.
"""

import argparse
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from reaper.cli import audit, exits, fleet, screen, waits, whose
from reaper.cli.naming import Found, find
from reaper.cli.opened import configuration_of, mode_note, store_of
from reaper.decide import lifecycle
from reaper.decide.budget import price_of
from reaper.decide.engine import explain
from reaper.decide.facts import Facts
from reaper.decide.findings import span_text
from reaper.decide.guards import stop_protected
from reaper.decide.last_look import last_look
from reaper.decide.undo import left_stopped
from reaper.decide.waste import SHIPPED_ABOVE, IdleGpus, Waste, waste
from reaper.errors import UsageError
from reaper.model.audit import AuditEntry
from reaper.model.decision import Decision, Finding, FindingKind, Verdict
from reaper.model.kinds.instance import Protections
from reaper.model.mark import Mark, Stage
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Configuration, Mode
from reaper.model.resource import ResourceId
from reaper.model.signal import Activity, Observation, Voice
from reaper.model.snooze import Snooze
from reaper.ports import Store
from reaper.service import lost, mornings, owed
from reaper.service.gather import Gathering, read_known
from reaper.service.unused import unused_gpus
from reaper.service.watch import Watch

if TYPE_CHECKING:
    from rich.console import Console

NAME = "why"
HELP = "explain one machine: verdict, findings, countdown, reports"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper why trainer-7                    by its name, if only one machine has it
  reaper why i-0a1b2c3d4e5f60718          by its native id
  reaper why aws:123456789012:eu-west-1:instance:i-0abc --json

It reads the store only and needs no credentials.
exit codes: 0 done, 2 usage or configuration (no such machine, or several)
"""

REPORTS_SHOWN, ENTRIES_SHOWN = 3, 12


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one machine. ``decision`` None: it is not in the newest listing, so nothing is decided about it."""

    found: Found
    decision: Decision | None
    facts: Facts | None
    mark: Mark | None
    due_at: datetime | None
    look: str | None
    snoozes: tuple[Snooze, ...]
    reports: tuple[Observation, ...]
    voice: Voice | None
    attempts: tuple[Attempt, ...]
    entries: tuple[AuditEntry, ...]
    cautions: tuple[str, ...] = ()
    waste: Waste | None = None
    idle_gpus: IdleGpus | None = None

    @property
    def stopped_by_us(self) -> Attempt | None:
        """The stop of ours that it still lies under."""
        last = next((a for a in self.attempts if a.outcome is Outcome.DONE or left_stopped(a)), None)
        running = self.found.instance is not None and self.found.instance.state.counts
        return last if last is not None and (last.action.stops or left_stopped(last)) and not running else None


    @property
    def noted(self) -> str | None:
        """What the rules noted when its countdown began, with what only the cloud could tell then; None: nothing, or there is no countdown."""
        if self.mark is None:
            return None
        return next((entry.evidence["noted"] for entry in self.entries if "noted" in entry.evidence and entry.at >= self.mark.nominated_at), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="whole id, native id or name of a machine")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, ConfigurationError, StoreError."""
    configuration, now = configuration_of(args), args.clock.now()
    with store_of(args) as store:
        cautions = (mode_note(store, configuration), *lost.notes(configuration, store))
        configuration = lost.in_effect(configuration, store)
        found = find(store, args.id)
        if not found.seen:
            raise UsageError(f"{found.id} was never listed and never reported; `reaper inventory` shows what was")
        told = replace(_look(store, found, configuration, now), cautions=tuple(caution for caution in cautions if caution is not None))
    if args.json:
        screen.result(document(told, now))
    else:
        _show(told, now, screen.console())
    return exits.DONE


def _look(store: Store, found: Found, configuration: Configuration, now: datetime) -> Told:
    id = found.id
    voice = store.voice(id)
    decision = facts = mark = due_at = look = wasted = unused = None
    if found.instance is not None:
        watch = Watch(store)
        watch.catch_up(store, now)  # folds only the machines that are asked for
        gathering = Gathering(found.inventory, read_known(store, now), watch, configuration, now)
        gathering.mornings = mornings.read(store, gathering, now, owed.starting(store))
        facts = gathering.facts(id, now)
        decision = _decision(facts, now)
        if decision.state.activity is Activity.BUSY:
            above = facts.policy.starved_above if facts.policy is not None else SHIPPED_ABOVE
            price = price_of(found.instance.type, configuration.prices, found.instance.hourly_usd)
            wasted, unused = waste(facts.newest, above, price), unused_gpus(facts, watch, price)
        marks = [m for m in store.marks().values() if m.resource == id]
        mark = next((m for m in marks if m.action is decision.action), marks[0] if marks else None)
        if mark is not None and facts.policy is not None:
            observe = configuration.mode is not Mode.ENFORCE or facts.policy.mode is not Mode.ENFORCE
            due_at = lifecycle.earliest(mark, facts.policy, now)
            look = last_look(mark, facts, now, observe=observe) if mark.stage is Stage.DUE else None
            decision = lifecycle.preferred(mark, decision, facts.policy, now)
    return Told(
        found=found, decision=decision, facts=facts, mark=mark, due_at=due_at, look=look,
        snoozes=_snoozes(store, facts, id, now),
        reports=_reports(store, id, voice), voice=voice,
        attempts=store.attempts(resource=id, limit=20),
        entries=store.audit(resource=id, limit=ENTRIES_SHOWN), waste=wasted, idle_gpus=unused,
    )  # fmt: skip


def _snoozes(store: Store, facts: Facts | None, id: ResourceId, now: datetime) -> tuple[Snooze, ...]:
    """With the ends that hold under its policies, as far as those are known."""
    known = facts.snoozes if facts is not None else tuple(s for s in store.snoozes(now) if s.resource == id)
    return tuple(snooze for snooze in known if snooze.active(now))


def _decision(facts: Facts, now: datetime) -> Decision:
    """With every guard's answer. Stop protection costs a call of the cloud, which the cycle makes when nothing else holds."""
    decision = explain(replace(facts, protections=Protections(stop_protected=False)), now)
    note = Finding(stop_protected.NAME, FindingKind.NOTE, "not asked here; it is read from the cloud before anything is done, and holds if it is on")
    return replace(decision, findings=(*decision.findings, note))


def _reports(store: Store, id: ResourceId, voice: Voice | None) -> tuple[Observation, ...]:
    """The newest few, newest first."""
    if voice is None:
        return ()
    kept = list(store.observations(voice.last_at - timedelta(minutes=10), id))
    return tuple(sorted(kept, key=lambda seen: seen.ended_at, reverse=True)[:REPORTS_SHOWN])


# --- for machines -----------------------------------------------------------------------------------------------------


def document(told: Told, now: datetime) -> dict[str, Any]:
    instance, decision, facts = told.found.instance, told.decision, told.facts
    listing = told.found.listing
    return {
        "resource": str(told.found.id),
        "name": instance.name if instance is not None else None,
        "machine": None
        if instance is None
        else {
            "type": instance.type, "gpus": instance.gpus, "gpu_model": instance.gpu_model, "state": instance.state.value,
            "running_since": screen.iso(fleet.running_since(instance, told.found.inventory)), "tags": instance.tags,
            "owner": fleet.owner(instance, facts.policy if facts is not None else None),
            "listed_at": screen.iso(listing.listed_at) if listing is not None else None,
            "place_failed": listing.failed if listing is not None else None,
        },
        "policies": [p.name for p in facts.policies] if facts is not None else [],
        "verdict": decision.verdict.value if decision is not None else None,
        "action": decision.action.value if decision is not None else None,
        "cause": decision.cause if decision is not None else None,
        "state": decision.state.value if decision is not None else None,
        "because": decision.because if decision is not None else "it is not in the newest listing",
        "gang": facts.gang if facts is not None else None,
        "findings": [_finding(f) for f in decision.findings] if decision is not None else [],
        "mark": _mark(told, now),
        "noted": told.noted,
        "snoozes": [{"until": screen.iso(s.until), "who": s.who, "reason": s.reason, "made_at": screen.iso(s.created_at)} for s in told.snoozes],
        "reports": [_report(seen, now) for seen in told.reports],
        **whose.document(told.reports[0] if told.reports else None),
        **waits.document(told.reports[0] if told.reports else None),
        "starved": waits.starved(told.waste),
        "idle_gpus": waits.unused(told.idle_gpus),
        "agent": None
        if told.voice is None
        else {
            "first_report_at": screen.iso(told.voice.first_at), "last_report_at": screen.iso(told.voice.last_at),
            "distrust": facts.distrust if facts is not None else None,
        },
        "stopped_by_us": _attempt(told.stopped_by_us) if told.stopped_by_us is not None else None,
        "attempts": [_attempt(a) for a in told.attempts],
        "audit": [audit.document(entry) for entry in told.entries],
        "notes": list(told.cautions),
    }  # fmt: skip


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "rule": f.rule, "kind": f.kind.value, "because": f.because, "action": f.action.value if f.action is not None else None,
        "value": f.value, "limit": f.limit, "age_s": round(f.age.total_seconds(), 1) if f.age is not None else None, "change": f.change,
    }  # fmt: skip


def _mark(told: Told, now: datetime) -> dict[str, Any] | None:
    mark = told.mark
    if mark is None:
        return None
    return {
        "action": mark.action.value, "cause": mark.cause, "stage": mark.stage.value, "policy": mark.policy, "because": mark.because,
        "nominated_at": screen.iso(mark.nominated_at), "warned_at": screen.iso(mark.warned_at), "warned_via": mark.warned_via,
        "waited_s": round(mark.waited.total_seconds()), "paused": mark.paused, "due_at": screen.iso(told.due_at),
        "due_in_s": round((told.due_at - now).total_seconds()) if told.due_at is not None else None, "waiting_for": told.look,
    }  # fmt: skip


def _report(seen: Observation, now: datetime) -> dict[str, Any]:
    return {
        "seq": seen.seq, "boot_id": seen.boot_id, "ended_at": screen.iso(seen.ended_at), "age_s": round((now - seen.ended_at).total_seconds(), 1),
        "window_s": seen.window_s, "verified": seen.verified, "sampler": seen.sampler, "because": seen.because, "agent": seen.agent,
        "expected_gpus": seen.expected_gpus,
        "gpus": [{"uuid": g.uuid, "peak_ratio": g.peak, "covered_s": g.covered_s, "processes": g.processes, "trouble": g.trouble} for g in seen.gpus],
        "cpu_ratio": seen.cpu_ratio,
    }  # fmt: skip


def _attempt(a: Attempt) -> dict[str, Any]:
    return {
        "attempt": a.id, "action": a.action.value, "at": screen.iso(a.intent_at), "ended_at": screen.iso(a.outcome_at), "actor": a.actor,
        "outcome": a.outcome.value if a.outcome is not None else None, "because": a.because, "detail": a.detail, "policy": a.policy,
        "undo": f"reaper undo {a.id}" if left_stopped(a) else None,
    }  # fmt: skip


# --- for people -------------------------------------------------------------------------------------------------------


def _show(told: Told, now: datetime, console: "Console") -> None:
    for line in (*_head(told, now), *_verdict(told), *_countdown(told, now)):
        screen.say(console, line)
    if told.decision is not None:
        _show_findings(told.decision, console)
    for snooze in told.snoozes:
        screen.say(console, f"snoozed until {screen.when(snooze.until)} by {snooze.who}: {snooze.reason}")
    screen.say(console, *_agent(told, now))
    if told.entries:
        slim = screen.narrow(console)
        screen.say(console, "the record:")
        columns = ("no.", "when (UTC)", "what", "by", "because")
        rows = [[cell for n, cell in enumerate(audit.row(entry, slim)) if n != 3] for entry in told.entries]
        screen.table(console, columns, rows, wide=("because",))
    for caution in told.cautions:
        screen.say(console, f"note: {caution}")


def _head(told: Told, now: datetime) -> list[str]:
    instance, listing, facts = told.found.instance, told.found.listing, told.facts
    lines = [f"{told.found.title}  {told.found.id}"]
    stopped = told.stopped_by_us
    if instance is None or listing is None:
        ledger = told.found.inventory.ledgers.get(told.found.id)
        lines.append("it is not in the newest listing" + (f"; last seen {screen.ago(ledger.last_seen_at, now)}" if ledger is not None else ""))
    else:
        count = "GPUs not known" if instance.gpus is None else f"{instance.gpus} GPU{'s' if instance.gpus != 1 else ''}"
        since = fleet.running_since(instance, told.found.inventory)
        policies = ", ".join(f"{p.name} ({p.mode}, {p.action})" for p in facts.policies) if facts is not None else ""
        owner = fleet.owner(instance, facts.policy if facts is not None else None)
        lines.append(
            f"{instance.type}, {count}; {instance.state}" + (f" since {screen.when(since)}, {span_text(now - since)}" if since is not None else "")
            + f"; owner {owner or 'not tagged'}; policy {policies or 'none'}; listed {screen.ago(listing.listed_at, now)}"
        )  # fmt: skip
        if listing.failed is not None:
            lines.append(f"its place could not be listed since: {listing.failed}")
    if stopped is not None:
        lines.append(
            f"stopped by us at {screen.when(stopped.outcome_at or stopped.intent_at)} because {stopped.because}; undo with: reaper undo {stopped.id}"
        )
    under_way = next((a for a in told.attempts if a.outcome is None), None)
    if under_way is not None:
        lines.append(f"{under_way.action} under way since {screen.when(under_way.intent_at)} ({under_way.id})")
    return lines


def _verdict(told: Told) -> list[str]:
    decision = told.decision
    if decision is None:
        return []
    match decision.verdict:
        case Verdict.ACT:
            what = f"act: {decision.action} it, when its countdown is served"
        case Verdict.WAIT:
            what = f"wait: would {decision.action} it, and holds"
        case Verdict.KEEP:
            what = "keep"
    cause = f", cause {decision.cause}" if decision.cause is not None else ""
    return [f"verdict: {what}: {decision.because}", f"state: {decision.state}{cause}"]


def _countdown(told: Told, now: datetime) -> list[str]:
    mark = told.mark
    if mark is None:
        return []
    line = f"countdown: {mark.stage} for {mark.action}, nominated {screen.ago(mark.nominated_at, now)}"
    if mark.warned_at is not None:
        line += f", warned {screen.when(mark.warned_at)} via {mark.warned_via}, {span_text(mark.waited)} of its wait served"
    if mark.paused is not None:
        line += f"; it stands still: {mark.paused}"
    elif mark.stage is Stage.DUE:
        line += f"; due since {screen.when(mark.due_at)}" + (f", {told.look}" if told.look else "")
    elif told.due_at is not None:
        line += f"; due at the earliest {screen.when(told.due_at)}, in {span_text(told.due_at - now)}"
    return [line] if told.noted is None else [line, f"noted: {told.noted}"]


def _show_findings(decision: Decision, console: "Console") -> None:
    columns = ("rule", "says", "because", "value", "limit", "age", "what would change it")
    rows: list[list[screen.Cell]] = [
        [
            f.rule, f"{f.kind} {f.action}" if f.action is not None else f.kind.value, f.because, f.value or "", f.limit or "",
            span_text(f.age) if f.age is not None else "", f.change or "",
        ]
        for f in decision.findings
    ]  # fmt: skip
    screen.table(console, columns, rows, wide=("because", "what would change it"))


def _agent(told: Told, now: datetime) -> list[str]:
    if told.voice is None:
        return ["agent: never had one"]
    lines = [f"agent: first report {screen.when(told.voice.first_at)}, last one received {screen.ago(told.voice.last_at, now)}"]
    for seen in told.reports:
        peaks = ", ".join("not read" if g.peak is None else f"{g.peak:.0%}" for g in seen.gpus) or "no GPU in it"
        trouble = "" if seen.sampler in ("ok", "no-gpu") else f"; {seen.because or seen.sampler}"
        lines.append(
            f"  report {seen.seq}: window of {seen.window_s:g} s ended {screen.ago(seen.ended_at, now)}, "
            f"{'verified' if seen.verified else 'not verified'}, GPU peaks {peaks}{trouble}"
        )
    lines += [f"  {line}" for line in waits.lines(told.reports[0] if told.reports else None, told.waste, told.idle_gpus)]
    lines += [f"  {line}" for line in whose.lines(told.reports[0] if told.reports else None)]
    if not told.reports:
        lines.append("  none of its reports is kept any more")
    return lines
