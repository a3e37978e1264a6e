"""A cycle's result as one document for machines, and the same as tables for people."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from reaper.cli import screen, waits
from reaper.cli.screen import Cell
from reaper.decide.budget import price_of
from reaper.decide.findings import span_text
from reaper.decide.waste import Waste, idle_told
from reaper.decide.waste import told as wasted_text
from reaper.model.decision import FindingKind, Verdict
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.mark import Stage
from reaper.model.policy import Configuration, Mode, Policy, owner_of
from reaper.model.signal import State
from reaper.service.cycle import CycleResult, Row
from reaper.service.inventory import Inventory

if TYPE_CHECKING:
    from rich.console import Console

ANY_OWNER = ("tag:owner",)
"""Where to look for an owner on a machine that no policy matches."""

Document = dict[str, Any]

CREDENTIALS = (
    "AWS needs credentials that may describe instances: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or run where an instance role gives them"
)


def document(result: CycleResult, configuration: Configuration, *, by_leader: bool = False) -> Document:
    """
    Everything `plan` tells. Moments are RFC 3339 UTC; what is not known is null. ``by_leader``: the listing is the one
    that the reaper which leads has kept.
    """
    machines = [_machine(row, result, configuration) for row in sorted(result.rows, key=_place_in_line)]
    inventory = result.inventory
    return {
        "plan": result.plan.id,
        "made_at": screen.iso(result.plan.made_at),
        "mode": configuration.mode.value,
        "configuration": {"source": configuration.source, "digest": configuration.digest},
        "listed_by": "the reaper that leads" if by_leader else "this command",
        "machines": machines,
        "actions": [
            {
                "resource": str(a.resource), "name": a.name, "action": a.action.value, "cause": a.cause, "policy": a.policy,
                "because": a.because, "gang": a.gang, "usd_per_hour": a.usd_per_hour,
            }
            for a in result.plan.actions
        ],
        "withheld": [
            {
                "resource": str(w.resource), "name": w.name, "action": w.action.value, "cause": w.cause, "policy": w.policy,
                "by": w.by, "because": w.because,
            }
            for w in result.plan.withheld
        ],
        "notes": list(result.plan.notes),
        "kill_switch": result.brake,
        "failed_places": failed_places(inventory, result.at),
        "problems": list(inventory.problems),
        "summary": _summary(machines),
    }  # fmt: skip


def failed_places(inventory: Inventory, now: datetime) -> list[Document]:
    """``listed_at``: of the listing that stands in; null: it never answered."""
    return [
        {
            "place": str(listing.place), "because": listing.failed, "kept": len(listing.instances),
            "listed_at": screen.iso(listing.listed_at) if listing.instances else None,
            "age_s": round((now - listing.listed_at).total_seconds()) if listing.instances else None,
        }
        for listing in inventory.failed
    ]  # fmt: skip


def unreadable(inventory: Inventory) -> bool:
    """Whether not one place could be read, though some were asked."""
    asked = bool(inventory.listings) or bool(inventory.problems)
    return asked and all(listing.failed is not None for listing in inventory.listings.values())


def credentials_hint(problems: list[str]) -> str | None:
    return CREDENTIALS if any("credentials" in problem for problem in problems) else None


def running_since(instance: Instance, inventory: Inventory) -> datetime | None:
    """The start that the cloud shows, else our own first sight of this run; None: it does not run, or is not known."""
    if not instance.state.counts:
        return None
    ledger = inventory.ledgers.get(instance.id)
    return instance.launched_at or (ledger.running_since if ledger is not None else None)


def owner(instance: Instance, policy: Policy | None) -> str | None:
    return owner_of(instance, policy.owner if policy is not None else ANY_OWNER)


def _place_in_line(row: Row) -> tuple[bool, int, int, str, str]:
    mark = row.candidate.mark
    stages = {Stage.DUE: 0, Stage.WARNED: 1, Stage.NOMINATED: 2}
    order = {Verdict.ACT: 0, Verdict.WAIT: 1, Verdict.KEEP: 2}
    instance = row.candidate.instance
    stage = stages[mark.stage] if mark is not None else 3
    return (not instance.state.counts, stage, order[row.decision.verdict], instance.title, str(instance.id))


def _machine(row: Row, result: CycleResult, configuration: Configuration) -> Document:
    candidate, decision = row.candidate, row.decision
    instance, mark, policy = candidate.instance, candidate.mark, candidate.policy
    enforced = configuration.mode is Mode.ENFORCE and policy is not None and policy.mode is Mode.ENFORCE
    return {
        "resource": str(instance.id),
        "name": instance.name,
        "type": instance.type,
        "gpus": instance.gpus,
        "gpu_model": instance.gpu_model,
        "owner": owner(instance, policy),
        "policy": decision.policy,
        "enforced": enforced,
        "gang": candidate.gang,
        "machine_state": instance.state.value,
        "running_since": screen.iso(running_since(instance, result.inventory)),
        "usd_per_hour": price_of(instance.type, configuration.prices, instance.hourly_usd),
        "state": decision.state.value,
        "verdict": decision.verdict.value,
        "action": decision.action.value,
        "cause": decision.cause,
        "because": decision.because,
        "starved": waits.starved(row.waste),
        "noted": [f.because for f in decision.findings if f.kind is FindingKind.NOTE],
        "idle_gpus": waits.unused(row.idle_gpus),
        "objections": [{"rule": f.rule, "kind": f.kind.value, "because": f.because} for f in decision.objections],
        "mark": None
        if mark is None
        else {
            "stage": mark.stage.value,
            "nominated_at": screen.iso(mark.nominated_at),
            "warned_at": screen.iso(mark.warned_at),
            "paused": mark.paused,
            "due_at": screen.iso(row.due_at),
            "due_in_s": None if row.due_at is None else round((row.due_at - result.at).total_seconds()),
            "waiting_for": candidate.look if mark.stage is Stage.DUE else None,
        },
    }


def _summary(machines: list[Document]) -> Document:
    running = [m for m in machines if InstanceState(m["machine_state"]).counts]
    prices = [m["usd_per_hour"] for m in running]
    wasted = [m["starved"] for m in machines if m["starved"] is not None]
    costs = [w["usd_per_day"] for w in wasted if w["usd_per_day"] is not None]
    return {
        "machines": len(machines),
        "running": len(running),
        "gpus_running": sum(m["gpus"] for m in running if m["gpus"] is not None),
        "gpu_count_unknown": sum(m["gpus"] is None for m in running),
        "usd_per_hour": sum(p for p in prices if p is not None) if any(p is not None for p in prices) else None,
        "without_price": sum(p is None for p in prices),
        "without_agent": sum(m["state"] == State.NO_AGENT for m in running),
        "without_owner": sum(m["owner"] is None for m in running),
        "without_policy": sum(m["policy"] is None for m in running),
        "countdowns": sum(m["mark"] is not None for m in machines),
        "starved": len(wasted),
        "starved_usd_per_day": sum(costs) if costs else None,
        **_unused(machines),
    }


def _unused(machines: list[Document]) -> Document:
    unused = [m["idle_gpus"] for m in machines if m["idle_gpus"] is not None]
    costs = [u["usd_per_day"] for u in unused if u["usd_per_day"] is not None]
    return {"idle_gpus": sum(u["idle"] for u in unused), "idle_gpu_machines": len(unused), "idle_gpu_usd_per_day": sum(costs) if costs else None}


# --- for people -------------------------------------------------------------------------------------------------------


def show(told: Document, now: datetime, console: "Console", *, everything: bool = False) -> None:
    """``everything``: machines that do not run as well."""
    enforce = told["mode"] == Mode.ENFORCE
    screen.say(
        console,
        f"mode {told['mode']}" + ("" if enforce else " (nothing is touched)") + f"; configuration {told['configuration']['source']}; listed by {told['listed_by']}",
    )
    shown = [m for m in told["machines"] if everything or InstanceState(m["machine_state"]) not in (InstanceState.STOPPED, InstanceState.TERMINATED)]
    if shown:
        _show_machines(shown, now, console)
    for line in _sums(told, len(told["machines"]) - len(shown)):
        screen.say(console, line)
    if told["actions"]:
        screen.say(console, f"to be done: {len(told['actions'])}")
        screen.say(console, *[line for a in told["actions"] for line in (_to_be_done(a), *_noted(a["resource"], told["machines"]))])
    if told["withheld"]:
        screen.say(console, f"withheld: {len(told['withheld'])}")
        held = [(w, f"  {w['action']} {w['name']} ({w['resource']}), by {w['by']}: {w['because']}") for w in told["withheld"]]
        screen.say(console, *[line for w, first in held for line in (first, *_noted(w["resource"], told["machines"]))])
    screen.say(console, *[f"note: {note}" for note in told["notes"]])
    show_failures(told["failed_places"], told["problems"], console)


def _to_be_done(action: Document) -> str:
    return f"  {action['action']} {action['name']} ({action['resource']}): {action['because']}{_price(action)}"


def _noted(resource: str, machines: list[Document]) -> list[str]:
    """What the rules say of it beside: that a stop saves nothing, or how it may come back."""
    return [f"    noted: {words}" for machine in machines if machine["resource"] == resource for words in machine["noted"]]


def show_failures(places: list[Document], problems: list[str], console: "Console") -> None:
    for place in places:
        kept = f"; its {place['kept']} machines are shown as listed {_span(place['age_s'])} ago" if place["kept"] else ""
        screen.say(console, f"not read: {place['place']}: {place['because']}{kept}")
    screen.say(console, *[f"not read: {problem}" for problem in problems])
    hint = credentials_hint(problems)
    if hint is not None:
        screen.say(console, hint)


def _show_machines(machines: list[Document], now: datetime, console: "Console") -> None:
    slim = screen.narrow(console)
    if slim:
        rows: list[list[Cell]] = [
            [
                (m["name"] or "", _native(m)), (m["type"], _gpus(m)), (m["owner"] or "-", m["policy"] or "no policy"),
                (_doing(m), _up(m, now)), (m["verdict"], next_step(m)), _why(m),
            ]
            for m in machines
        ]  # fmt: skip
        screen.table(console, ("machine", "type", "owner, policy", "state", "verdict", "why"), rows, wide=("why",), ids=("machine",))
        return
    rows = [
        [
            m["name"] or "-", m["resource"], m["type"], _gpus(m), m["owner"] or "-", m["policy"] or "-", _doing(m),
            m["running_since"] or "-", m["verdict"], next_step(m) or "-", _why(m),
        ]
        for m in machines
    ]  # fmt: skip
    columns = ("machine", "id", "type", "gpus", "owner", "policy", "state", "running since", "verdict", "next", "why")
    screen.table(console, columns, rows)


def next_step(machine: Mapping[str, Any]) -> str:
    """What comes next for it, were nothing to change; "" when nothing does."""
    mark, action = machine["mark"], machine["action"]
    would = "" if machine["enforced"] else "would "
    if mark is None:
        return f"{would}{action} after a warning" if machine["verdict"] == Verdict.ACT else ""
    if mark["paused"] is not None:
        return f"{action} paused"
    if mark["stage"] == Stage.DUE:
        return f"{would}{action}: due" if machine["verdict"] == Verdict.ACT else f"{action} held"
    if mark["stage"] == Stage.NOMINATED:
        return f"{would}{action}, to be warned"
    return f"{would}{action} in {_span(mark['due_in_s'])}" if mark["due_in_s"] is not None else f"{would}{action} later"


def _why(machine: Mapping[str, Any]) -> str:
    mark, wasted = machine["mark"], machine["starved"]
    spent = [] if wasted is None else [wasted_text(Waste(wasted["tree"], wasted["wait_ratio"], wasted["measured"], wasted["usd_per_day"]))]
    if machine["idle_gpus"] is not None:
        spent.append(idle_told(waits.unused_of(machine["idle_gpus"])))
    if spent:
        return "; ".join([machine["because"], *spent])
    if mark is not None and mark["waiting_for"] is not None and machine["verdict"] == Verdict.ACT:
        return f"{machine['because']}; {mark['waiting_for']}"
    return str(machine["because"])


def _doing(machine: Mapping[str, Any]) -> str:
    """What it does by its agent; what the cloud says where it is not running."""
    return str(machine["state"] if machine["machine_state"] == InstanceState.RUNNING else machine["machine_state"])


def _up(machine: Mapping[str, Any], now: datetime) -> str:
    since = machine["running_since"]
    return f"up {span_text(now - datetime.fromisoformat(since))}" if since is not None else ""


def _gpus(machine: Mapping[str, Any]) -> str:
    count, model = machine["gpus"], machine["gpu_model"]
    if count is None:
        return "GPUs not known"
    if count == 0:
        return "no GPU"
    return f"{count} GPU{'s' if count != 1 else ''}" + (f" {model}" if model else "")


def _native(machine: Mapping[str, Any]) -> str:
    return str(machine["resource"]).rpartition(":")[2]


def _sums(told: Document, hidden: int) -> list[str]:
    sums = told["summary"]
    if sums["machines"] == 0:
        return []
    running = f"{sums['running']} running with {sums['gpus_running']} GPUs" + (
        f" (of {sums['gpu_count_unknown']} the count is not known)" if sums["gpu_count_unknown"] else ""
    )
    if sums["usd_per_hour"] is not None:
        running += f", {screen.dollars(sums['usd_per_hour'])} an hour" + (f" beside {sums['without_price']} without a price" if sums["without_price"] else "")
    lines = [running + (f"; {hidden} stopped are not shown (--all)" if hidden else "")]
    missing = [
        f"{sums[key]} {word}"
        for key, word in (("without_agent", "without an agent"), ("without_owner", "without an owner tag"), ("without_policy", "without a policy"))
        if sums[key]
    ]
    if missing:
        lines.append("of them " + ", ".join(missing))
    if sums["starved"]:
        cost = f", which costs {screen.dollars(sums['starved_usd_per_day'])} a day" if sums["starved_usd_per_day"] is not None else ""
        lines.append(f"{sums['starved']} starved, waiting for data{cost}; nothing is ever stopped for that")
    if sums["idle_gpus"]:
        cost = f", which cost {screen.dollars(sums['idle_gpu_usd_per_day'])} a day" if sums["idle_gpu_usd_per_day"] is not None else ""
        lines.append(f"{sums['idle_gpus']} GPUs idle on {sums['idle_gpu_machines']} machines that work on others{cost}; nothing is ever stopped for that")
    return lines


def _price(action: Mapping[str, Any]) -> str:
    return f" (saves {screen.dollars(action['usd_per_hour'])} an hour)" if action["usd_per_hour"] is not None else ""


def _span(seconds: float | None) -> str:
    return span_text(timedelta(seconds=max(seconds or 0, 0)))
