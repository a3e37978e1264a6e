"""
`reaper check`: is this configuration right, and what does it say?

Prints every problem at once, or what the configuration comes to: its policies with inherited terms filled in, what is
protected, the budgets, and what an operator should look at. No secret is printed.
"""

import argparse
import json
import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reaper import config
from reaper.clock import SystemClock
from reaper.config.values import written
from reaper.errors import ConfigurationError, StoreError
from reaper.model.policy import Configuration, CountBudget, Hours, Policy, Protection, Selector
from reaper.ports import Probed
from reaper.service.hours import first

if TYPE_CHECKING:
    from rich.table import Table

NAME = "check"
HELP = "validate a configuration and show what it comes to"
EXAMPLES = """\
examples:
  reaper check                         $REAPER_CONFIG, else /etc/idle-reaper, else the built-in configuration
  reaper check reaper.toml             one file, TOML or JSON
  reaper check /etc/idle-reaper        a folder of them
  reaper check --schema > schema.json  the JSON Schema, for editors
  reaper check --json reaper.toml      one JSON object on the last line

  reaper check --permissions           also ask the clouds whether they allow what this needs

exit codes: 0 the configuration is right, 1 a permission that is needed is denied, 2 it is refused (every problem is printed)
"""

OK, DENIED, CONFIGURATION = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", metavar="PATH", help="a file (.toml, .json) or a folder of them")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a configuration and read nothing")
    parser.add_argument("--permissions", action="store_true", help="try each permission without doing anything")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line, for machines")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        print(json.dumps(config.schema(), indent=None if args.json else 2))
        return OK
    path = config.find(args.path)
    try:
        configuration = config.built_in() if path is None else config.load(path)
    except ConfigurationError as refused:
        _print_problems(refused.problems, str(path), args.json)
        return CONFIGURATION
    now = SystemClock().now()
    found = (*_put_back(configuration, getattr(args, "state", None), getattr(args, "store", None)), *config.remarks(configuration, now))
    probed = _probe(configuration) if args.permissions else ()
    if args.json:
        report = _report(configuration, now, found)
        print(json.dumps(report | {"permissions": [asdict(one) for one in probed]} if args.permissions else report))
    else:
        _print_summary(configuration, now, found)
        _print_probed(probed)
    return DENIED if any(one.allowed is False and not one.optional for one in probed) else OK


def _probe(configuration: Configuration) -> tuple[Probed, ...]:
    from reaper.wiring import build_probers  # loads the SDK, which most checks do not need

    return tuple(probed for prober in build_probers(configuration, SystemClock()) for probed in prober.probe(configuration))


def _print_probed(probed: tuple[Probed, ...]) -> None:
    for words, allowed in (("allowed", True), ("DENIED", False), ("not probed", None)):
        these = [one for one in probed if one.allowed is allowed]
        if these and allowed:
            print(f"permissions allowed: {len(these)}")
        for one in these if not allowed else ():
            print(f"permission {words}{' (optional)' if one.optional and not allowed else ''}: {one.permission} in {one.account}: {one.because}")


def _put_back(configuration: Configuration, state: str | None, url: str | None) -> tuple[str, ...]:
    """Policies that the reaper of this state folder put back to observe, if there is one: they do not do what they say."""
    if state is None or (url is None and not os.path.isfile(os.path.join(state, "state.db"))):
        return ()
    from reaper.service.lost import notes
    from reaper.wiring import open_state  # loads the database library, which most checks do not need

    try:
        store = open_state(Path(state), url, create=False, check=False)
        try:
            return notes(configuration, store)
        finally:
            store.close()
    except StoreError as error:
        return (f"whether lost work put a policy back to observe is not known: {error}",)


def _print_problems(problems: tuple[str, ...], path: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ok": False, "source": path, "problems": list(problems)}))
        return
    for problem in problems:
        print(problem)
    print(f"refused: {len(problems)} problem{'s' if len(problems) != 1 else ''}; nothing of it is used")


def _report(configuration: Configuration, now: datetime, remarks: tuple[str, ...]) -> dict[str, Any]:
    """For machines. Channels by name only: their addresses are secrets."""
    aws, gcp = configuration.aws, configuration.gcp
    holding = _holding(configuration, now)
    return {
        "ok": True,
        "source": configuration.source,
        "name": configuration.name,
        "mode": configuration.mode.value,
        "digest": configuration.digest,
        "cycle_s": configuration.cycle.total_seconds(),
        "aws": None
        if aws is None
        else {
            "accounts": [{"id": a.id, "role": a.role, "via": list(a.via), "regions": list(a.regions or aws.regions)} for a in aws.accounts],
            "regions": list(aws.regions),
            "endpoint": aws.endpoint,
        },
        "gcp": None
        if gcp is None
        else {
            "projects": list(gcp.projects), "below": list(gcp.below), "zones": list(gcp.zones), "service_account": gcp.service_account, "local_ssd": gcp.local_ssd,
            "deletion_protection": gcp.deletion_protection, "endpoint": gcp.endpoint,
        },
        "gang": list(configuration.gang_same),
        "scope": {
            "given": configuration.scope.given,
            "what": _plain(configuration.scope.what),
            "verbs": list(configuration.scope.verbs),
            "claim": None if configuration.scope.claim is None else f"{configuration.scope.claim.key}={configuration.scope.claim.value}",
        },
        "policies": [_policy(policy) for policy in configuration.policies],
        "protected": {"entries": len(configuration.protections), "holding": [p.name for p in holding]},
        "hours": [_hours(hours) for hours in configuration.hours],
        "budgets": {verb: _limits(budget) for verb, budget in _budgets(configuration)},
        "breaker": _breaker(configuration),
        "channels": sorted(configuration.channels),
        "prices": configuration.prices,
        "remarks": list(remarks),
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "digest": policy.digest,
        "when": _plain(policy.when),
        "mode": policy.mode.value,
        "action": policy.action,
        "idle_for_s": policy.idle.idle_for.total_seconds(),
        "gpu_at_most_ratio": policy.idle.gpu_at_most,
        "held_for_s": policy.idle.held_for.total_seconds(),
        "warn_for_s": policy.warn.wait.total_seconds(),
        "quiet": None if policy.warn.quiet is None else str(policy.warn.quiet),
        "via": list(policy.warn.via),
        "hours": None if policy.hours is None else policy.hours.name,
        "job_ended": None
        if policy.job_ended is None
        else {
            "for_s": policy.job_ended.ended_for.total_seconds(),
            "warn_for_s": policy.job_ended.warn.wait.total_seconds(),
            "quiet": None if policy.job_ended.warn.quiet is None else str(policy.job_ended.warn.quiet),
        },
        "busy": {"cpu_ratio": policy.busy.cpu, "disk_mib_s": policy.busy.disk_mib_s, "net_mib_s": policy.busy.net_mib_s},
        "min_age_s": policy.min_age.total_seconds(),
        "starved_above_ratio": policy.starved_above,
        "orchestrator": policy.orchestrator,
        "local_nvme": policy.local_nvme,
        "local_scratch": list(policy.local_scratch),
        "snooze_up_to_s": policy.snooze_up_to.total_seconds(),
        "owner": list(policy.owner),
        "project": list(policy.project),
        "environment": list(policy.environment),
        "scarce_types": list(policy.scarce_types),
        "reserved": policy.reserved,
        "hibernate_else": policy.hibernate_else,
        "suspend_else": policy.suspend_else,
        "restart_hold": list(policy.restart_hold),
    }


def _hours(hours: Hours) -> dict[str, Any]:
    schedule = hours.schedule
    return {
        "name": hours.name, "digest": hours.digest, "zone": schedule.zone, "on": [str(interval) for interval in schedule.on], "only": schedule.only,
        "holidays": [*schedule.holidays, *(day.isoformat() for day in schedule.days_off)], "also_on": [str(one) for one in schedule.also_on],
        "also_off": [str(one) for one in schedule.also_off], "warn_for_s": hours.wait.total_seconds(), "idle_for_s": hours.idle_for.total_seconds(),
        "held_for_s": hours.held_for.total_seconds(), "if_busy": hours.if_busy, "no_agent": hours.no_agent, "start_also": hours.start_also,
    }  # fmt: skip


def _plain(selector: Selector) -> dict[str, Any]:
    return {"tags": {key: list(values) for key, values in selector.tags.items()}, "types": list(selector.types), "ids": list(selector.ids)}


def _holding(configuration: Configuration, now: datetime) -> tuple[Protection, ...]:
    return tuple(p for p in configuration.protections if p.until is None or p.until > now)


def _budgets(configuration: Configuration) -> tuple[tuple[str, CountBudget], ...]:
    budgets, verbs = configuration.budgets, configuration.scope.verbs
    wanted = {"stops": True, "starts": True, "snapshots": "snapshot" in verbs, "deletes": "terminate" in verbs}
    return tuple((name, getattr(budgets, name)) for name, told in wanted.items() if told)


def _limits(budget: CountBudget) -> dict[str, int | float | str]:
    """Only the limits there are, with what belongs to them."""
    keys = ("per_minute", "per_hour", "per_day", "per_cycle", "usd_per_hour", "share_per_hour")
    limits: dict[str, int | float | str] = {key: getattr(budget, key) for key in keys if getattr(budget, key) is not None}
    if budget.share_per_hour is not None:
        limits["at_least"] = budget.at_least
    return {**limits, "zone": budget.zone}


def _breaker(configuration: Configuration) -> dict[str, Any] | None:
    terms = configuration.budgets.breaker
    return None if terms is None else {"share": terms.share, "within_s": terms.within.total_seconds(), "at_least": terms.at_least}


def _print_summary(configuration: Configuration, now: datetime, found: tuple[str, ...]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)
    if configuration.source == config.BUILT_IN:
        console.print("no configuration was found: this is the built-in one; it observes and touches nothing")
    console.print(f"{configuration.name}: mode {configuration.mode}, cycle {written(configuration.cycle)}, digest {configuration.digest}")
    console.print(f"source: {configuration.source}")
    console.print(f"cloud: {_cloud(configuration)}")
    console.print(f"eligible: {_scope(configuration)}")
    if configuration.gang_same:
        console.print(f"one job: machines that share {' or '.join(configuration.gang_same)}")
    console.print(_policies(configuration), soft_wrap=False)
    for hours in configuration.hours:
        console.print(first(hours, now))
    _print_protections(configuration, now, console.print)
    for verb, budget in _budgets(configuration):
        console.print(f"budget of {verb}: {_budget(budget)}")
    breaker = configuration.budgets.breaker
    opens = breaker and f"opens at {_percent(breaker.share)} of the fleet and {breaker.at_least} machines within {written(breaker.within)}"
    console.print(f"breaker: {opens or 'off'}")
    console.print(f"channels: {', '.join(('log', *sorted(configuration.channels)))}")
    console.print(f"look at: {len(found)}" if found else "look at: nothing")
    for remark in found:
        console.print(f"  - {remark}")


def _policies(configuration: Configuration) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title="policies, with what they inherit", title_justify="left", show_lines=True)
    table.add_column("policy", overflow="fold")
    table.add_column("terms", overflow="fold")
    for policy in configuration.policies:
        table.add_row(Text(policy.name), Text("\n".join(_terms(policy))))
    return table


def _terms(policy: Policy) -> list[str]:
    quiet = "" if policy.warn.quiet is None else f", quiet {policy.warn.quiet}"
    lines = [
        f"when {_selector(policy.when) or 'any machine'}",
        f"{policy.mode}, action {policy.action}",
        f"idle for {written(policy.idle.idle_for)}, held for {written(policy.idle.held_for)}, GPU at most {_percent(policy.idle.gpu_at_most)}",
        f"warns {written(policy.warn.wait)} ahead via {', '.join(policy.warn.via)}{quiet}",
        f"busy from cpu {_percent(policy.busy.cpu)}, disk {policy.busy.disk_mib_s:g} MiB/s, net {policy.busy.net_mib_s:g} MiB/s",
        f"starved above {_percent(policy.starved_above)}, at least {written(policy.min_age)} old",
        f"orchestrator {policy.orchestrator}, local nvme {policy.local_nvme}"
        + (f", scratch in {', '.join(policy.local_scratch)}" if policy.local_scratch else ""),
        f"snooze up to {written(policy.snooze_up_to)}, owner from {', '.join(policy.owner)}",
    ]
    if policy.hours is not None:
        lines.insert(4, f"hours {policy.hours.name}: outside them idle for {written(policy.hours.idle_for)}, warns {written(policy.hours.wait)} ahead")
    ended = policy.job_ended
    if ended is not None:
        quiet = "at any hour" if ended.warn.quiet is None else f"quiet {ended.warn.quiet}"
        lines.insert(4, f"job ended for {written(ended.ended_for)}: warns {written(ended.warn.wait)} ahead, {quiet}")
    if policy.scarce_types:
        lines.append(f"only reports {', '.join(policy.scarce_types)}")
    if policy.reserved != "hold":
        lines.append(f"reserved capacity: {policy.reserved}")
    if policy.restart_hold:
        lines.append(f"holds where a restart risks its {', '.join(policy.restart_hold)}")
    return [*lines, f"digest {policy.digest}"]


def _print_protections(configuration: Configuration, now: datetime, show: Any) -> None:
    holding = _holding(configuration, now)
    ended = len(configuration.protections) - len(holding)
    show(f"protected: {len(holding)} in force" + (f", {ended} ended" if ended else ""))
    for protection in holding:
        end = "for ever" if protection.until is None else f"until {protection.until:%Y-%m-%d %H:%M} UTC"
        show(f"  - {protection.name}: {_selector(protection.what)}, {end} ({protection.reason})")


def _cloud(configuration: Configuration) -> str:
    return "; ".join(text for text in (_aws(configuration), _gcp(configuration)) if text) or "none"


def _gcp(configuration: Configuration) -> str:
    gcp = configuration.gcp
    if gcp is None:
        return ""
    whose = f" as {gcp.service_account}" if gcp.service_account is not None else ""
    zones = ", ".join(gcp.zones) or "all zones"
    return f"Google Cloud, {', '.join((*gcp.projects, *(f'whatever is below {parent}' for parent in gcp.below)))}{whose}, {zones}, local SSDs: {gcp.local_ssd}" + (f", at {gcp.endpoint}" if gcp.endpoint else "")


def _aws(configuration: Configuration) -> str:
    aws = configuration.aws
    if aws is None:
        return ""
    regions = ", ".join(aws.regions) or "the regions that are switched on"
    accounts = ", ".join(f"{a.id}" + (f" by role {a.role}" if a.role is not None else "") for a in aws.accounts)
    return f"AWS, account {accounts or 'of the credentials at hand'}, {regions}" + (f", at {aws.endpoint}" if aws.endpoint else "")


def _scope(configuration: Configuration) -> str:
    scope = configuration.scope
    if not scope.given:
        return "no scope is written: nothing may be acted on"
    claim = "" if scope.claim is None else f"; claimed by {scope.claim.key}={scope.claim.value}"
    return f"{_selector(scope.what) or 'every machine'}; verbs {', '.join(scope.verbs) or 'none'}{claim}"


def _selector(selector: Selector) -> str:
    parts = [f"{key} = {' or '.join(values)}" for key, values in selector.tags.items()]
    parts += [" or ".join(selector.types)] if selector.types else []
    parts += [" or ".join(selector.ids)] if selector.ids else []
    return ", ".join(parts)


def _budget(budget: CountBudget) -> str:
    words = {
        "per_minute": "{} a minute",
        "per_hour": "{} an hour",
        "per_day": "{} a day",
        "per_cycle": "{} a cycle",
        "usd_per_hour": "{:g} dollars an hour",
    }
    limits = _limits(budget)
    parts = [text.format(limits[key]) for key, text in words.items() if key in limits]
    if budget.share_per_hour is not None:
        parts.append(f"{_percent(budget.share_per_hour)} of the fleet an hour (at least {budget.at_least})")
    return f"{', '.join(parts) or 'unlimited'}; days begin in {budget.zone}"


def _percent(share: float) -> str:
    return f"{share * 100:g}%"
