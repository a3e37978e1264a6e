"""
What each table may say alone and all of them may not say together.

Every rule names the paths it read, so that one slip of the keyboard is told once and not once for every rule it upsets.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import combinations
from pathlib import Path as File

from reaper.config import convert, hours, pointers, values
from reaper.config.document import (
    AwsAccountTable,
    AwsTable,
    ChannelTable,
    CountTable,
    DefaultsTable,
    Document,
    HoursTable,
    JobEndedTable,
    SelectorTable,
    TermsTable,
)
from reaper.config.problems import Path, Problem
from reaper.model.policy import WebhookChannel
from reaper.model.schedule import NEVER

SHORTEST = timedelta(minutes=5)
"""Reports come once a minute and people read slower; a shorter term is for clouds on loopback only."""

CYCLES = (timedelta(seconds=5), timedelta(minutes=10))
"""More than 10 minutes without a cycle would warn everybody anew."""

SHORTEST_CYCLE_ON_LOOPBACK = timedelta(seconds=1)

LOG = "log"
"""The channel that always exists."""


def on_loopback(document: Document) -> bool:
    """Whether every cloud is a local one. A cloud that is not written is the real one."""
    written = [] if document.clouds is None else [table for table in (document.clouds.aws, document.clouds.gcp) if table is not None]
    return bool(written) and all(table.endpoint is not None and pointers.loopback(table.endpoint) for table in written)


def check(document: Document) -> list[Problem]:
    """Every problem that no single value shows."""
    return [
        *_clouds(document),
        *_cycle(document),
        *_selections(document),
        *_budgets(document),
        *_short_terms(document),
        *_held(document),
        *_endings(document),
        *_channel_names(document),
        *_two_policies(document),
        *_hours(document),
        *_hours_named(document),
        *_enforcing(document),
    ]


def _clouds(document: Document) -> Iterator[Problem]:
    if document.clouds is not None and document.clouds.aws is None and document.clouds.gcp is None:
        yield Problem(("clouds",), "names no cloud", "add [clouds.aws] or [clouds.gcp], or leave [clouds] out for AWS with the credentials at hand", (("clouds",),))
    if document.clouds is not None and document.clouds.aws is not None:
        yield from _aws(document.clouds.aws)
    if document.clouds is not None and document.clouds.gcp is not None and not (document.clouds.gcp.projects or document.clouds.gcp.below):
        at: Path = ("clouds", "gcp")
        yield Problem(at, "names no project", 'add projects = ["ml-research"], or below = ["folders/123456789012"]', (at,))
    if document.clouds is not None and document.clouds.gcp is not None and not document.clouds.gcp.below:
        for id in document.clouds.gcp.project:
            if id not in (document.clouds.gcp.projects or ()):
                place: Path = ("clouds", "gcp", "project", id)
                yield Problem(place, "is not among projects", f'add "{id}" to clouds.gcp.projects', (("clouds", "gcp", "projects"),))


def _aws(table: AwsTable) -> Iterator[Problem]:
    at: Path = ("clouds", "aws")
    accounts = table.accounts or []
    for id in table.account:
        if id not in accounts:
            yield Problem((*at, "account", id), "is not among accounts", f'add "{id}" to clouds.aws.accounts', ((*at, "accounts"),))
    own: list[str] = []
    for id in accounts:
        special = table.account.get(id, AwsAccountTable())
        here: Path = (*at, "account", id) if special.role is not None else at
        role = special.role or table.role
        if role is None or role == pointers.NO_ROLE:
            own.append(id)
        elif role.startswith("arn:") and pointers.account_of_role(role) != id:
            what = f"is a role of account {pointers.account_of_role(role)} and not of {id}"
            yield Problem((*here, "role"), what, "write the role's name alone, and it is looked for in each account")
    if len(own) > 1:
        what = f"accounts {', '.join(own)} have no role, and the credentials at hand belong to one account only"
        yield Problem((*at, "role"), what, 'write the role to assume in each, as role = "idle-reaper"', (at,))
    if table.role is None and not any(special.role for special in table.account.values()):
        for key in ("external_id", "via"):
            if getattr(table, key) is not None:
                yield Problem((*at, key), "means nothing without a role", "write role, or remove it", (at,))
    if table.role is not None and not accounts:
        yield Problem((*at, "role"), "is a role in no account", "write accounts, or remove it", (at,))


def _cycle(document: Document) -> Iterator[Problem]:
    if document.cycle is None:
        return
    local = on_loopback(document)
    shortest = SHORTEST_CYCLE_ON_LOOPBACK if local else CYCLES[0]
    if not shortest <= document.cycle <= CYCLES[1]:
        words = f"write {values.written(shortest)} to {values.written(CYCLES[1])}"
        yield Problem(("cycle",), f"{values.written(document.cycle)} is out of range", words, (("clouds",),))


def _selections(document: Document) -> Iterator[Problem]:
    for name, table in document.protect.items():
        if _selects_nothing(table):
            path: Path = ("protect", name)
            yield Problem(path, "protects nothing", "write ids, tags or types", (path,))
    for name, policy in document.policy.items():
        if policy.when is not None and _selects_nothing(policy.when):
            path = ("policy", name, "when")
            yield Problem(path, "selects nothing", "write tags, types or ids, or leave when out for every machine", (path,))


def _selects_nothing(table: SelectorTable) -> bool:
    return table.tags is None and table.types is None and table.ids is None


def _budgets(document: Document) -> Iterator[Problem]:
    if document.budget is None:
        return
    for verb in ("stops", "starts", "snapshots", "deletes"):
        table: CountTable | None = getattr(document.budget, verb)
        if table is None:
            continue
        path: Path = ("budget", verb)
        if not _limits(table):
            yield Problem(path, "limits nothing", "write a limit, as per_hour = 4, or leave the table out for the shipped ones", (path,))
        elif table.at_least is not None and table.share_per_hour is None:
            yield Problem((*path, "at_least"), "means nothing without share_per_hour", "write share_per_hour, or remove it", (path,))


def _limits(table: CountTable) -> bool:
    written = (table.per_minute, table.per_hour, table.per_day, table.per_cycle, table.usd_per_hour, table.share_per_hour)
    return any(limit is not None for limit in written)


def _endings(document: Document) -> Iterator[Problem]:
    """Ending machines is never inherited: whoever asks for it has written it beside the machines that it means."""
    if document.defaults is not None and document.defaults.action == "terminate":
        yield Problem(("defaults", "action"), "terminate is never inherited", "write it in the policy that means it", (("defaults", "action"),))
    for name, policy in document.policy.items():
        if policy.action == "terminate" and policy.when is None:
            path: Path = ("policy", name, "when")
            yield Problem(path, f"is missing, and policy.{name} ends machines", "say which machines it means", (path,))


def _terms(document: Document) -> Iterator[tuple[Path, TermsTable]]:
    if document.defaults is not None:
        yield ("defaults",), document.defaults
    for name, policy in document.policy.items():
        yield ("policy", name), policy


def _short_terms(document: Document) -> Iterator[Problem]:
    if on_loopback(document):
        return
    for path, terms in _terms(document):
        spans: list[tuple[Path, timedelta | None]] = [(("min_age",), terms.min_age)]
        if terms.idle is not None:
            spans += [(("idle", "for"), terms.idle.for_), (("idle", "held_for"), terms.idle.held_for)]
        if terms.warn is not None:
            spans.append((("warn", "for"), terms.warn.for_))
        if isinstance(terms.job_ended, JobEndedTable):
            spans += [(("job_ended", "for"), terms.job_ended.for_), (("job_ended", "warn"), terms.job_ended.warn)]
        for below, span in spans:
            if span is not None and span < SHORTEST:
                what = f"{values.written(span)} is shorter than {values.written(SHORTEST)}"
                yield Problem((*path, *below), what, "write a longer term; shorter ones are for clouds on loopback", (("clouds",),))


def _held(document: Document) -> Iterator[Problem]:
    """On effective terms, so that a long ``for`` over the shipped ``held_for`` is noticed too."""
    defaults = document.defaults or DefaultsTable()
    for name, table in document.policy.items():
        idle = convert.policy(name, table, defaults).idle
        if idle.held_for < idle.idle_for:
            path: Path = ("policy", name, "idle")
            what = f"held_for is {values.written(idle.held_for)} and shorter than for, {values.written(idle.idle_for)}"
            remedy = "write a held_for at least as long: memory that is still taken is a reason to wait longer"
            yield Problem(path, what, remedy, (path, ("defaults", "idle")))


def _hours(document: Document) -> Iterator[Problem]:
    """What the intervals of a schedule may not say together, and terms too short to be seen."""
    folded: dict[str, str] = {}
    for name, table in document.hours.items():
        path: Path = ("hours", name)
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            yield Problem(path, f"and hours.{other} are the same name to a tag", "choose another name", (path,))
        both = hours.overlap([interval for several in table.on for interval in several])
        if both is not None:
            yield Problem((*path, "on"), f"{both[0]} and {both[1]} overlap", "write each minute of the week once", ((*path, "on"),))
        for one in table.also_on or ():
            for off in table.also_off or ():
                if one.start < off.end and off.start < one.end:
                    what = f"{off} overlaps also_on, {one}"
                    yield Problem((*path, "also_off"), what, "say of each minute only once what it is", ((*path, "also_on"),))
        yield from _hours_terms(path, table, on_loopback(document))


def _hours_terms(path: Path, table: HoursTable, local: bool) -> Iterator[Problem]:
    warn = table.warn.for_ if table.warn is not None else None
    spans = ((("warn", "for"), warn), (("idle_for",), table.idle_for), (("held_for",), table.held_for))
    for below, span in spans:
        if span is not None and span < SHORTEST and not local:
            what = f"{values.written(span)} is shorter than {values.written(SHORTEST)}"
            yield Problem((*path, *below), what, "write a longer term; shorter ones are for clouds on loopback", (("clouds",),))
    shipped = convert.hours("?", table)
    if shipped.held_for < shipped.idle_for:
        what = f"{values.written(shipped.held_for)} is shorter than idle_for, {values.written(shipped.idle_for)}"
        yield Problem((*path, "held_for"), what, "write one at least as long: memory that is still taken is a reason to wait longer", ((*path, "idle_for"),))
    if table.only == "stop" and table.start_also:
        yield Problem((*path, "start_also"), 'means nothing under only = "stop"', "remove one of the two", ((*path, "only"),))


def _hours_named(document: Document) -> Iterator[Problem]:
    told: list[tuple[Path, str | None]] = [(("defaults", "hours"), document.defaults.hours)] if document.defaults is not None else []
    told += [(("policy", policy, "hours"), table.hours) for policy, table in document.policy.items()]
    for path, name in told:
        if name is not None and name.casefold() != NEVER and name not in document.hours:
            known = ", ".join(sorted(document.hours)) or "none"
            yield Problem(path, f"{values.shown(name)} is not a schedule", f'write [hours.{name}], one of those there ({known}), or "never"', (("hours",),))


def _channel_names(document: Document) -> Iterator[Problem]:
    if LOG in document.channels:
        yield Problem(("channels", LOG), "is the name of the built-in channel", "choose another name")
    for path, terms in _terms(document):
        for place, word in enumerate((terms.warn and terms.warn.via) or ()):
            if word != LOG and word not in document.channels:
                known = ", ".join((LOG, *sorted(document.channels)))
                remedy = f"write one of {known}, or add [channels.{word}]"
                yield Problem((*path, "warn", "via", place), f"{values.shown(word)} is not a channel", remedy, (("channels",),))


def _two_policies(document: Document) -> Iterator[Problem]:
    names = sorted(document.policy)
    selectors = {name: convert.selector(document.policy[name].when) for name in names}
    for one, other in combinations(names, 2):
        concerns: tuple[Path, ...] = (("policy", one, "when"), ("policy", other, "when"))
        if not selectors[one].empty and selectors[one] == selectors[other]:
            what = f"selects the same machines as policy.{one}, and two policies hold a machine"
            yield Problem(("policy", other, "when"), what, "make them differ or remove one", concerns)
    if len(names) > 1:
        for name in names:
            if document.policy[name].when is None:
                rest = ", ".join(other for other in names if other != name)
                what = f"has no when and so also matches the machines of {rest}; two policies hold a machine"
                yield Problem(("policy", name), what, "add when", (("policy", name, "when"),))


def _enforcing(document: Document) -> Iterator[Problem]:
    """Nothing acts without a positive scope, a name, and a verb that was written."""
    acting = sorted(name for name, policy in document.policy.items() if policy.mode == "enforce")
    if document.mode != "enforce" or not acting:
        return
    because = f"policy.{acting[0]} enforces"
    if document.name is None:
        yield Problem(("name",), f"is missing, and {because}", 'add name = "ml-platform" at the top', (("name",),))
    scope = document.scope
    if scope is None:
        yield Problem(("scope",), f"is missing, and {because}", 'add [scope] with tags, types or ids, and verbs = ["stop"]', (("scope",),))
        return
    if _selects_nothing(scope):
        yield Problem(("scope",), f"selects nothing by name, and {because}", "add tags, types or ids", (("scope",),))
    if "stop" not in (scope.verbs or ()):
        yield Problem(("scope", "verbs"), f"does not list stop, and {because}", 'write verbs = ["stop"]', (("scope",),))
    for name in acting:
        inherited = document.defaults.action if document.defaults is not None and document.defaults.action != "terminate" else None
        action = document.policy[name].action or inherited or ""
        wanted = {"stop-and-snapshot": ("snapshot",), "terminate": ("snapshot", "terminate")}.get(action, ())
        missing = [verb for verb in wanted if verb not in (scope.verbs or ())]
        if missing:
            concerns: tuple[Path, ...] = (("scope",), ("policy", name, "action"))
            what = f"does not list {' and '.join(missing)}, and policy.{name} has the action {action}"
            yield Problem(("scope", "verbs"), what, "add " + ", ".join(f'"{verb}"' for verb in missing), concerns)


def channels(
    tables: Mapping[str, ChannelTable], environ: Mapping[str, str] = os.environ
) -> tuple[dict[str, WebhookChannel], list[Problem]]:
    """The channels with their secrets, and what is wrong with the rest. No problem holds a secret."""
    found: dict[str, WebhookChannel] = {}
    problems: list[Problem] = []
    for name, table in sorted(tables.items()):
        path: Path = ("channels", name)
        written = [key for key in ("webhook", "webhook_file", "webhook_env") if getattr(table, key) is not None]
        if len(written) != 1:
            what = f"has {' and '.join(written)}" if written else "has no address"
            problems.append(Problem(path, what, "write exactly one of webhook, webhook_file and webhook_env", (path,)))
            continue
        try:
            found[name] = WebhookChannel(_address(table, environ))
        except values.Unreadable as wrong:
            problems.append(Problem((*path, written[0]), wrong.what, wrong.remedy, (path,)))
    return found, problems


def _address(table: ChannelTable, environ: Mapping[str, str]) -> str:
    if table.webhook is not None:
        return table.webhook
    if table.webhook_env is not None:
        content = environ.get(table.webhook_env, "").strip()
        if not content:
            raise values.Unreadable(f"the environment variable {table.webhook_env} is not set or empty", "set it to the address")
        return pointers.webhook(content)
    try:
        content = File(str(table.webhook_file)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise values.Unreadable(f"the file {table.webhook_file} cannot be read ({reason})", "write the address into it") from None
    return pointers.webhook(content)
