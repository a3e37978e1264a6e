"""
The typed document to the model's own types: inheritance resolved, defaults filled in, order made canonical.

A policy inherits key by key from [defaults], also inside idle, warn, busy; what nobody wrote is the model's default.
"""

from datetime import UTC, date, timedelta
from typing import TypeVar

from reaper.config import hours as hours_words
from reaper.config import pointers
from reaper.config.document import (
    AwsAccountTable,
    AwsTable,
    BreakerTable,
    BudgetTable,
    BusyTable,
    CountTable,
    DefaultsTable,
    Document,
    HoursTable,
    HoursWarnTable,
    IdleTable,
    JobEndedTable,
    PolicyTable,
    ScopeTable,
    SelectorTable,
    SnoozeTable,
    WarnTable,
)
from reaper.model.policy import (
    AwsAccount,
    AwsCloud,
    BreakerTerms,
    Budgets,
    BusyTerms,
    Claim,
    Configuration,
    CountBudget,
    GcpCloud,
    Hours,
    IdleTerms,
    JobEndedTerms,
    Mode,
    Policy,
    Protection,
    Scope,
    Selector,
    Warn,
    WebhookChannel,
)
from reaper.model.schedule import NEVER, Schedule

T = TypeVar("T")

UNNAMED = "default"

HOURS_WARNING = timedelta(minutes=30)
"""People who are about to leave read a warning at once."""


def configuration(document: Document, channels: dict[str, WebhookChannel], source: str) -> Configuration:
    """Policies and protections are ordered by name, so that moving a block changes nothing. No digests yet."""
    shipped = Configuration(name=UNNAMED, mode=Mode.OBSERVE, policies=())
    defaults = document.defaults or DefaultsTable()
    known = {name: hours(name, table) for name, table in sorted(document.hours.items())}
    return Configuration(
        name=_first(document.name, UNNAMED),
        mode=Mode(_first(document.mode, Mode.OBSERVE)),
        policies=tuple(policy(name, table, defaults, known) for name, table in sorted(document.policy.items())),
        cycle=_first(document.cycle, shipped.cycle),
        aws=_aws(document),
        gcp=_gcp(document),
        gang_same=() if document.gang is None else tuple(document.gang.same),
        scope=_scope(document.scope),
        protections=tuple(
            Protection(name, selector(table), table.reason, None if table.until is None else table.until.astimezone(UTC))
            for name, table in sorted(document.protect.items())
        ),
        budgets=_budgets(document.budget),
        channels=channels,
        prices=dict(sorted(document.prices.items())),
        hours=tuple(known.values()),
        source=source,
    )


def selector(table: SelectorTable | None) -> Selector:
    """Values sorted: their order means nothing. None selects everything."""
    if table is None:
        return Selector()
    return Selector(
        tags={key: tuple(sorted(values)) for key, values in sorted((table.tags or {}).items())},
        types=tuple(sorted(table.types or ())),
        ids=tuple(sorted(table.ids or ())),
    )


def hours(name: str, table: HoursTable) -> Hours:
    """Intervals and dates sorted: their order means nothing."""
    words = tuple(sorted(word for word in table.holidays or () if isinstance(word, str)))
    schedule = Schedule(
        name=name,
        zone=table.zone,
        on=tuple(sorted(interval for several in table.on for interval in several)),
        holidays=words,
        days_off=tuple(sorted(day for day in table.holidays or () if isinstance(day, date))),
        also_on=tuple(sorted(table.also_on or ())),
        also_off=tuple(sorted(table.also_off or ())),
        only=table.only,
        holiday=hours_words.tables(words),
    )
    shipped, warn = Hours(schedule), table.warn or HoursWarnTable()
    idle_for = _first(table.idle_for, shipped.idle_for)
    return Hours(
        schedule=schedule,
        wait=_first(warn.for_, HOURS_WARNING),
        quiet=warn.quiet,
        idle_for=idle_for,
        held_for=_first(table.held_for, idle_for),
        if_busy=_first(table.if_busy, shipped.if_busy),
        no_agent=_first(table.no_agent, shipped.no_agent),
        start_also=_first(table.start_also, shipped.start_also),
        start_order=_first(table.start_order, shipped.start_order),
    )


def hours_of(table: PolicyTable, defaults: DefaultsTable) -> str | None:
    """The schedule that a policy names or inherits; None: none, or "never"."""
    name = table.hours if table.hours is not None else defaults.hours
    return None if name is None or name.casefold() == NEVER else name


def policy(name: str, table: PolicyTable, defaults: DefaultsTable, known: dict[str, Hours] | None = None) -> Policy:
    shipped = Policy(name=name, when=Selector())
    scarce = table.scarce or defaults.scarce
    own, inherited = table.snooze or SnoozeTable(), defaults.snooze or SnoozeTable()
    warn = _warn(table.warn or WarnTable(), defaults.warn or WarnTable(), shipped.warn)
    under = hours_of(table, defaults)
    return Policy(
        name=name,
        when=selector(table.when),
        mode=Mode(_first(table.mode, shipped.mode)),
        action=_first(table.action, defaults.action, shipped.action),
        idle=_idle(table.idle or IdleTable(), defaults.idle or IdleTable(), shipped.idle),
        warn=warn,
        busy=_busy(table.busy or BusyTable(), defaults.busy or BusyTable(), shipped.busy),
        min_age=_first(table.min_age, defaults.min_age, shipped.min_age),
        starved_above=_first(table.starved_above, defaults.starved_above, shipped.starved_above),
        orchestrator=_first(table.orchestrator, defaults.orchestrator, shipped.orchestrator),
        local_nvme=_first(table.local_nvme, defaults.local_nvme, shipped.local_nvme),
        local_scratch=tuple(_first(table.local_scratch, defaults.local_scratch, ())),
        snooze_up_to=_first(own.up_to, inherited.up_to, shipped.snooze_up_to),
        owner=tuple(_first(table.owner, defaults.owner, shipped.owner)),
        project=tuple(_first(table.project, defaults.project, shipped.project)),
        environment=tuple(_first(table.environment, defaults.environment, shipped.environment)),
        scarce_types=() if scarce is None else tuple(sorted(scarce.types)),
        hibernate_else=_first(table.hibernate_else, defaults.hibernate_else, shipped.hibernate_else),
        suspend_else=_first(table.suspend_else, defaults.suspend_else, shipped.suspend_else),
        reserved=_first(table.reserved, defaults.reserved, shipped.reserved),
        restart_hold=tuple(sorted(_first(table.restart_hold, defaults.restart_hold, ()))),
        job_ended=_job_ended(table.job_ended, defaults.job_ended, warn),
        hours=(known or {}).get(under) if under is not None else None,
    )


def _first(*candidates: T | None) -> T:
    """The first that was written. Not truthiness: a written zero counts."""
    for candidate in candidates:
        if candidate is not None:
            return candidate
    raise LookupError("the last candidate is the shipped default and is never None")


def _idle(own: IdleTable, inherited: IdleTable, shipped: IdleTerms) -> IdleTerms:
    return IdleTerms(
        idle_for=_first(own.for_, inherited.for_, shipped.idle_for),
        gpu_at_most=_first(own.gpu_at_most, inherited.gpu_at_most, shipped.gpu_at_most),
        held_for=_first(own.held_for, inherited.held_for, shipped.held_for),
    )


def _warn(own: WarnTable, inherited: WarnTable, shipped: Warn) -> Warn:
    quiet = own.quiet if own.quiet is not None else inherited.quiet
    return Warn(
        wait=_first(own.for_, inherited.for_, shipped.wait),
        quiet=None if isinstance(quiet, str) else quiet,
        via=tuple(_first(own.via, inherited.via, list(shipped.via))),
    )


def _job_ended(own: JobEndedTable | str | None, inherited: JobEndedTable | str | None, warn: Warn) -> JobEndedTerms | None:
    """What is not written of its warning is the policy's own. "off" in a policy lifts what it would inherit."""
    if isinstance(own, str) or (own is None and not isinstance(inherited, JobEndedTable)):
        return None
    mine = own or JobEndedTable()
    theirs = inherited if isinstance(inherited, JobEndedTable) else JobEndedTable()
    quiet = mine.quiet if mine.quiet is not None else theirs.quiet
    return JobEndedTerms(
        ended_for=_first(mine.for_, theirs.for_, JobEndedTerms().ended_for),
        warn=Warn(
            wait=_first(mine.warn, theirs.warn, warn.wait),
            quiet=warn.quiet if quiet is None else None if isinstance(quiet, str) else quiet,
            via=warn.via,
        ),
    )


def _busy(own: BusyTable, inherited: BusyTable, shipped: BusyTerms) -> BusyTerms:
    return BusyTerms(
        cpu=_first(own.cpu, inherited.cpu, shipped.cpu),
        disk_mib_s=_first(own.disk_mib_s, inherited.disk_mib_s, shipped.disk_mib_s),
        net_mib_s=_first(own.net_mib_s, inherited.net_mib_s, shipped.net_mib_s),
    )


def _aws(document: Document) -> AwsCloud | None:
    """No [clouds] at all is AWS with whatever credentials are there."""
    table = AwsTable() if document.clouds is None else document.clouds.aws
    if table is None:
        return None
    return AwsCloud(
        regions=tuple(sorted(table.regions or ())),
        endpoint=table.endpoint,
        price_file=table.price_file,
        price_list=table.price_list != "off" and (table.endpoint is None or table.price_list == "ask"),
        accounts=tuple(_account(id, table.account.get(id, AwsAccountTable()), table) for id in sorted(table.accounts or ())),
    )


def _account(id: str, own: AwsAccountTable, common: AwsTable) -> AwsAccount:
    role = own.role or common.role
    assumes = role is not None and role != pointers.NO_ROLE
    return AwsAccount(
        id=id,
        role=role if assumes else None,
        external_id=(own.external_id or common.external_id) if assumes else None,
        session_name=_first(own.session_name, common.session_name, AwsAccount().session_name),
        via=tuple(own.via or common.via or ()) if assumes else (),
        regions=tuple(sorted(own.regions or ())),
        owner=own.owner,
        project=own.project,
        environment=own.environment,
    )


def _gcp(document: Document) -> GcpCloud | None:
    table = None if document.clouds is None else document.clouds.gcp
    if table is None:
        return None
    return GcpCloud(
        projects=tuple(sorted(table.projects or ())),
        zones=tuple(sorted(table.zones or ())),
        service_account=table.service_account,
        local_ssd=_first(table.local_ssd, GcpCloud(projects=()).local_ssd),
        deletion_protection=_first(table.deletion_protection, GcpCloud(projects=()).deletion_protection),
        endpoint=table.endpoint,
        below=tuple(sorted(table.below or ())),
        price_file=table.price_file,
        price_list=table.price_list != "off" and (table.endpoint is None or not pointers.loopback(table.endpoint) or table.price_list == "ask"),
        given={
            id: {key: text for key in ("owner", "project", "environment") if (text := getattr(own, key)) is not None}
            for id, own in sorted(table.project.items())
        },
    )


def _scope(table: ScopeTable | None) -> Scope:
    if table is None:
        return Scope()
    return Scope(
        what=selector(table),
        verbs=tuple(sorted(table.verbs or ())),
        claim=None if table.claim is None else Claim(*table.claim),
        given=True,
    )


def _budgets(table: BudgetTable | None) -> Budgets:
    """A table that is not written is the shipped one; a key not written in a table that is, is unlimited."""
    shipped = Budgets()
    if table is None:
        return shipped
    breaker = shipped.breaker
    if isinstance(table.breaker, BreakerTable):
        usual = BreakerTerms()
        breaker = BreakerTerms(
            share=_first(table.breaker.turned_idle, usual.share),
            within=_first(table.breaker.within, usual.within),
            at_least=_first(table.breaker.at_least, usual.at_least),
        )
    elif table.breaker is not None:
        breaker = None
    return Budgets(
        stops=shipped.stops if table.stops is None else _counts(table.stops),
        starts=shipped.starts if table.starts is None else _counts(table.starts),
        snapshots=shipped.snapshots if table.snapshots is None else _counts(table.snapshots),
        deletes=shipped.deletes if table.deletes is None else _counts(table.deletes),
        breaker=breaker,
    )


def _counts(table: CountTable) -> CountBudget:
    unlimited = CountBudget()
    return CountBudget(
        per_minute=table.per_minute,
        per_hour=table.per_hour,
        per_day=table.per_day,
        per_cycle=table.per_cycle,
        usd_per_hour=table.usd_per_hour,
        share_per_hour=table.share_per_hour,
        at_least=_first(table.at_least, unlimited.at_least),
        zone=_first(table.zone, unlimited.zone),
    )
