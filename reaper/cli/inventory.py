"""`reaper inventory`: the machines as last listed, who owns them, which policy they are under, and whether an agent speaks."""

import argparse
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from reaper.cli import exits, fleet, screen, waits
from reaper.cli.opened import configuration_of, leader_of, parts_of, store_of
from reaper.cli.screen import Cell
from reaper.decide.budget import price_of
from reaper.decide.waste import SHIPPED_ABOVE, Waste, waste
from reaper.model.kinds.instance import Instance
from reaper.model.policy import Configuration, Mode, Policy, Selector, environment_of, project_of
from reaper.model.signal import Observation, Voice
from reaper.ports import Store
from reaper.service.inventory import Inventory, kept, refresh

NAME = "inventory"
HELP = "show the machines as last listed"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper inventory                        as the store has it; asks no cloud
  reaper inventory --refresh              list the clouds first
  reaper inventory --json                 one JSON object on the last line

exit codes: 0 done, 1 no cloud could be read, 2 usage or configuration, 3 there are no machines
"""

SPEAKS_WITHIN = timedelta(minutes=5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="list the clouds first, unless a running reaper does so all the time")


def run(args: argparse.Namespace) -> int:
    """Raises ConfigurationError, StoreError."""
    configuration, now = configuration_of(args), args.clock.now()
    note = None
    if args.refresh:
        with parts_of(args, configuration, Mode.OBSERVE) as parts:
            if leader_of(parts.store, now) is None:
                listed = refresh(tuple(parts.clouds.values()), parts.store, now)
            else:
                listed, note = kept(parts.store), "a reaper is running and lists all the time: this is what it has"
            told = _document(parts.store, listed, configuration, now)
    else:
        with store_of(args) as store:
            listed = kept(store)
            told = _document(store, listed, configuration, now)
    code = exits.FAILED if args.refresh and fleet.unreadable(listed) else exits.DONE if told["machines"] else exits.NOTHING
    if args.json:
        screen.result(told)
        return code
    console = screen.console()
    if told["machines"]:
        columns = ("machine", "place", "type", "state", "owner", "policy", "agent")
        screen.table(console, columns, [_row(m, now, screen.narrow(console)) for m in told["machines"]], wide=("agent",), ids=("machine",))
    else:
        screen.say(console, "no machines are known; `reaper inventory --refresh` lists the clouds")
    fleet.show_failures(told["failed_places"], told["problems"], console)
    if note is not None:
        screen.say(console, f"note: {note}")
    return code


_ANY = Policy(name="", when=Selector())
"""Where to look on a machine that no policy matches."""


def _document(store: Store, listed: Inventory, configuration: Configuration, now: datetime) -> dict[str, Any]:
    voices = store.voices()
    found = sorted(listed.instances.items(), key=lambda item: (not item[1][0].state.counts, item[1][0].title, str(item[0])))
    return {
        "machines": [
            _machine(store, instance, voices.get(id), configuration, listed, now) | {"listed_at": screen.iso(listing.listed_at)}
            for id, (instance, listing) in found
        ],
        "failed_places": fleet.failed_places(listed, now),
        "problems": list(listed.problems),
    }


def _machine(store: Store, instance: Instance, voice: Voice | None, configuration: Configuration, listed: Inventory, now: datetime) -> dict[str, Any]:
    policies = configuration.policies_for(instance)
    newest = _newest(store, voice) if voice is not None else None
    return {
        "resource": str(instance.id),
        "name": instance.name,
        "place": instance.id.place,
        "account": instance.id.account,
        "type": instance.type,
        "gpus": instance.gpus,
        "gpu_model": instance.gpu_model,
        "state": instance.state.value,
        "running_since": screen.iso(fleet.running_since(instance, listed)),
        "owner": fleet.owner(instance, policies[0] if policies else None),
        "project": project_of(instance, (policies[0] if policies else _ANY).project),
        "environment": environment_of(instance, (policies[0] if policies else _ANY).environment),
        "usd_per_hour": price_of(instance.type, configuration.prices, instance.hourly_usd),
        "policies": [policy.name for policy in policies],
        "tags": instance.tags,
        "starved": waits.starved(_wasted(instance, newest, policies, configuration, now)),
        "agent": None
        if voice is None
        else {"version": newest.agent if newest is not None else None, "first_report_at": screen.iso(voice.first_at), "last_report_at": screen.iso(voice.last_at)},
    }


def _wasted(
    instance: Instance, newest: Observation | None, policies: Sequence[Policy], configuration: Configuration, now: datetime
) -> Waste | None:
    """Of a machine that speaks and runs."""
    above = policies[0].starved_above if len(policies) == 1 else SHIPPED_ABOVE
    if newest is None or now - newest.ended_at > SPEAKS_WITHIN or not instance.state.counts:
        return None
    return waste(newest, above, price_of(instance.type, configuration.prices, instance.hourly_usd))


def _newest(store: Store, voice: Voice) -> Observation | None:
    """Its newest kept report; None: none is kept any more."""
    kept = tuple(store.observations(voice.last_at - timedelta(minutes=5), voice.resource))
    return kept[-1] if kept else None


def _row(machine: dict[str, Any], now: datetime, slim: bool) -> list[Cell]:
    agent = machine["agent"]
    gpus = machine["gpus"]
    heard: Cell = "none"
    if agent is not None:
        last = datetime.fromisoformat(agent["last_report_at"])
        heard = (agent["version"] or "version not known", f"report {screen.ago(last, now)}")
    return [
        (machine["name"] or "", machine["resource"].rpartition(":")[2] if slim else machine["resource"]),
        (machine["place"], machine["account"]),
        (machine["type"], "GPUs not known" if gpus is None else f"{gpus} GPU{'s' if gpus != 1 else ''}"),
        (machine["state"], _starved(machine["starved"])) if machine["starved"] is not None else machine["state"],
        machine["owner"] or "-",
        ", ".join(machine["policies"]) or "-",
        heard,
    ]


def _starved(wasted: dict[str, Any]) -> str:
    cost = f", {screen.dollars(wasted['usd_per_day'])} a day" if wasted["usd_per_day"] is not None else ""
    return f"starved: waits {wasted['wait_ratio']:.0%}{cost}"
