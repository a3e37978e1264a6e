"""What the operator wrote, after it was read and checked. Nothing here can be wrong in a way that `check` would find."""

import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from reaper.model.kinds.instance import Instance
from reaper.model.schedule import DailyHours, Schedule
from reaper.model.signal import Limits

MIB = 1024 * 1024


class Mode(StrEnum):
    OBSERVE = "observe"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Selector:
    """Which machines. Every named tag must have one of its values; ``types`` (when given) must hold the machine's type."""

    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def matches(self, instance: Instance) -> bool:
        """An empty selector matches everything. ``ids`` are whole resource ids or native ids."""
        if self.ids and str(instance.id) not in self.ids and instance.id.native not in self.ids:
            return False
        if self.types and instance.type not in self.types:
            return False
        return all(instance.tags.get(key) in values for key, values in self.tags.items())

    @property
    def empty(self) -> bool:
        return not (self.tags or self.types or self.ids)


@dataclass(frozen=True, slots=True)
class Warn:
    """``wait`` counts outside ``quiet`` hours only, from the moment one channel of ``via`` accepted the warning."""

    wait: timedelta = timedelta(hours=1)
    quiet: DailyHours | None = None
    via: tuple[str, ...] = ("log",)


@dataclass(frozen=True, slots=True)
class IdleTerms:
    """Idle for ``idle_for`` with every GPU peak at or below ``gpu_at_most`` (0..1); held machines for ``held_for``."""

    idle_for: timedelta = timedelta(hours=2)
    gpu_at_most: float = 0.05
    held_for: timedelta = timedelta(hours=10)


JOB_ENDED = "job-ended"
"""The cause that comes with a warning of its own."""


AFTER_HOURS, MORNING_START = "after-hours", "morning-start"
"""The causes of a schedule."""


@dataclass(frozen=True, slots=True)
class Hours:
    """
    A schedule and its terms: what may be stopped outside it, and what is owed a start.

    ``wait``: how long before the end of hours people are warned, and how long they have. ``quiet``: hours that do not count of
    it; None: the policy's own, "ignore": none. ``idle_for`` and ``held_for``: how long idle is enough outside hours. ``if_busy``: "hold", or
    "stop", which stops work. ``no_agent``: "report", or "warn-and-stop" what never had an agent. ``start_also``: what was
    stopped within hours is owed a start, too, when they next begin. ``start_order``: the tag whose number says which machines
    of one job start first. ``digest`` changes when any of it does.
    """

    schedule: Schedule
    wait: timedelta = timedelta(minutes=30)
    quiet: DailyHours | str | None = None
    idle_for: timedelta = timedelta(minutes=15)
    held_for: timedelta = timedelta(minutes=15)
    if_busy: str = "hold"
    no_agent: str = "report"
    start_also: bool = False
    start_order: str = "reaper-start-order"
    digest: str = ""

    @property
    def name(self) -> str:
        return self.schedule.name


@dataclass(frozen=True, slots=True)
class JobEndedTerms:
    """A machine whose last job ended ``ended_for`` ago and that has been quiet since; ``warn`` in place of the policy's own."""

    ended_for: timedelta = timedelta(minutes=45)
    warn: Warn = field(default_factory=Warn)


@dataclass(frozen=True, slots=True)
class BusyTerms:
    """At or above one of these over a report window is work. ``cpu`` 0..1 of all cores; of one core for a GPU's owner."""

    cpu: float = 0.20
    disk_mib_s: float = 5.0
    net_mib_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Policy:
    """
    One life of a machine. ``action`` "report" never nominates; the others are the words of `decide.wanted`. ``job_ended``: None: the end of a job is no cause.
    ``reserved``: "hold" or "ignore" capacity that is paid for either way. ``restart_hold``: of the risks of a start
    ("address", "capacity", "key", "placement") those that hold instead of being told. ``hibernate_else``: "stop" or "hold" a machine that
    ``action`` "hibernate" meets and that was not launched for it; ``suspend_else`` the same under "suspend" where the cloud does
    not suspend it. ``hours``: its schedule; None: it is under none. ``digest`` changes when any term does.
    """

    name: str
    when: Selector
    mode: Mode = Mode.OBSERVE
    action: str = "stop"
    idle: IdleTerms = field(default_factory=IdleTerms)
    warn: Warn = field(default_factory=Warn)
    busy: BusyTerms = field(default_factory=BusyTerms)
    min_age: timedelta = timedelta(minutes=30)
    starved_above: float = 0.30
    orchestrator: str = "hold"
    local_nvme: str = "hold"
    local_scratch: tuple[str, ...] = ()
    snooze_up_to: timedelta = timedelta(days=5)
    owner: tuple[str, ...] = ("tag:owner",)
    project: tuple[str, ...] = ("tag:project",)
    environment: tuple[str, ...] = ("tag:environment", "tag:env")
    scarce_types: tuple[str, ...] = ()
    hook_veto_up_to: timedelta = timedelta(hours=24)
    job_ended: JobEndedTerms | None = None
    reserved: str = "hold"
    restart_hold: tuple[str, ...] = ()
    hibernate_else: str = "stop"
    suspend_else: str = "stop"
    hours: Hours | None = None
    digest: str = ""

    def warn_for(self, cause: str) -> Warn:
        """The warning that an action for this cause is given."""
        if cause == AFTER_HOURS and self.hours is not None:
            quiet = self.warn.quiet if self.hours.quiet is None else self.hours.quiet
            return Warn(self.hours.wait, quiet if isinstance(quiet, DailyHours) else None, self.warn.via)
        return self.job_ended.warn if cause == JOB_ENDED and self.job_ended is not None else self.warn

    @property
    def limits(self) -> Limits:
        return Limits(
            gpu=self.idle.gpu_at_most,
            cpu=self.busy.cpu,
            disk_bytes_per_s=self.busy.disk_mib_s * MIB,
            net_bytes_per_s=self.busy.net_mib_s * MIB,
            wait=self.starved_above,
        )


@dataclass(frozen=True, slots=True)
class Protection:
    """What may never be touched, why, and until when (None: for ever; the moment itself no longer protects)."""

    name: str
    what: Selector
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The tag that says which reaper may act on a machine where two share an account. Only the operator writes it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Eligible: what may be considered at all. ``given`` is False where no [scope] was written: then nothing is enforced."""

    what: Selector = field(default_factory=Selector)
    verbs: tuple[str, ...] = ()
    claim: Claim | None = None
    given: bool = False


@dataclass(frozen=True, slots=True)
class CountBudget:
    """Actions of one verb. None: unlimited. ``share_per_hour`` 0..1 of the running machines in scope, at least ``at_least``."""

    per_minute: int | None = None
    per_hour: int | None = None
    per_day: int | None = None
    per_cycle: int | None = None
    usd_per_hour: float | None = None
    share_per_hour: float | None = None
    at_least: int = 1
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class BreakerTerms:
    """Opens when at least ``at_least`` machines and ``share`` (0..1) of the fleet turn idle or unknown within ``within``."""

    share: float = 0.25
    within: timedelta = timedelta(minutes=15)
    at_least: int = 3


@dataclass(frozen=True, slots=True)
class Budgets:
    """
    The shipped figures are not unlimited. ``snapshots`` and ``deletes`` bind beside ``stops``: machines whose disks are
    snapshotted, and machines that are ended. A machine counts once, however many disks it has.
    """

    stops: CountBudget = field(default_factory=lambda: CountBudget(per_hour=4, per_day=20, share_per_hour=0.05))
    starts: CountBudget = field(default_factory=lambda: CountBudget(per_minute=5))
    snapshots: CountBudget = field(default_factory=lambda: CountBudget(per_day=20))
    deletes: CountBudget = field(default_factory=lambda: CountBudget(per_day=5))
    breaker: BreakerTerms | None = field(default_factory=BreakerTerms)


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """
    One account. ``id`` None: the one that the credentials at hand belong to. ``role``: the role to assume in it, a name
    (with its path) or a whole ARN; None: the credentials at hand are its own. ``via``: ARNs of roles to assume first, in
    order. ``regions``: to list, instead of the common ones. ``owner``, ``project``, ``environment``: of what no tag says.
    """

    id: str | None = None
    role: str | None = None
    external_id: str | None = None
    session_name: str = "idle-reaper"
    via: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    owner: str | None = None
    project: str | None = None
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class AwsCloud:
    """
    Regions to list (empty: those each account has switched on). ``endpoint`` points every AWS call elsewhere (tests, demo).
    ``accounts``: empty is the one that the credentials at hand belong to. ``price_file``: where list prices are kept;
    ``price_list``: whether AWS may be asked for them.
    """

    regions: tuple[str, ...] = ()
    endpoint: str | None = None
    accounts: tuple[AwsAccount, ...] = ()
    price_file: str | None = None
    price_list: bool = True


@dataclass(frozen=True, slots=True)
class GcpCloud:
    """
    Projects to list. ``zones``: the only ones to look at (empty: all). ``service_account``: whom to impersonate, in which
    "{project}" stands for the project's id; None: the credentials at hand. ``local_ssd``: what a stop does with the content
    of local SSDs, "preserve" or "discard". ``deletion_protection``: whether a machine with it is kept running, "hold" or
    "ignore". ``below``: folders and organisations ("folders/1") below which projects are found, beside those listed.
    ``price_file``: where list prices are kept; ``price_list``: whether Google may be asked for them, and for commitments.
    ``given``: by project, "owner", "project" and "environment" of what no label says.
    ``endpoint`` points every call elsewhere (tests, demo).
    """

    projects: tuple[str, ...]
    zones: tuple[str, ...] = ()
    service_account: str | None = None
    local_ssd: str = "preserve"
    deletion_protection: str = "hold"
    endpoint: str | None = None
    below: tuple[str, ...] = ()
    price_file: str | None = None
    price_list: bool = True
    given: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WebhookChannel:
    """Where a warning is POSTed as JSON. The address is a secret: it never reaches logs, errors or `check`."""

    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole document. ``digest`` identifies it; ``prices`` are dollars an hour by instance type, the operator's own."""

    name: str
    mode: Mode
    policies: tuple[Policy, ...]
    cycle: timedelta = timedelta(minutes=1)
    aws: AwsCloud | None = None
    gcp: GcpCloud | None = None
    gang_same: tuple[str, ...] = ()
    scope: Scope = field(default_factory=Scope)
    protections: tuple[Protection, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    channels: dict[str, WebhookChannel] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    hours: tuple[Hours, ...] = ()
    digest: str = ""
    source: str = "built in"

    def policies_for(self, instance: Instance) -> tuple[Policy, ...]:
        """Every policy that matches; more than one is a conflict that holds the machine."""
        return tuple(policy for policy in self.policies if policy.when.matches(instance))

    def protections_for(self, instance: Instance) -> tuple[Protection, ...]:
        """Every protection that names the machine, ended ones included: whether one still holds is asked of ``now``."""
        return tuple(p for p in self.protections if p.what.matches(instance))


def gang_keys(instance: Instance, same: tuple[str, ...]) -> frozenset[str]:
    """
    Every value of ``same`` that the machine has. Machines that share one are of one job: a member whose tag was forgotten
    is still in the placement group. Keys and values of tags compare without regard to case and width.
    """
    found = set()
    for rule in same:
        key = _folded(rule.removeprefix("tag:"))
        values = (
            [instance.placement_group]
            if rule == "placement-group"
            else [value for name, value in instance.tags.items() if _folded(name) == key]
        )
        found |= {f"{rule}={_folded(value)}@{instance.id.cloud}:{instance.id.account}" for value in values if value and _folded(value)}
    return frozenset(found)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


CREATOR_TAGS = ("aws:createdby", "creator", "created-by", "createdby", "created_by")
"""Who made it, where nothing says whose it is. The first is the one that AWS itself writes."""


class Tagged(Protocol):
    """Whatever carries tags and is in an account that says whose it is."""

    @property
    def tags(self) -> dict[str, str]: ...
    @property
    def given(self) -> dict[str, str] | None: ...


def owner_of(instance: Tagged, keys: tuple[str, ...]) -> str | None:
    """
    The first of the owner tags that is there, in the operator's order; else whom its account names; else who made it. Keys
    compare without regard to case.
    """
    return _told(instance, keys, "owner") or _creator(instance)


def project_of(instance: Tagged, keys: tuple[str, ...]) -> str | None:
    return _told(instance, keys, "project")


def environment_of(instance: Tagged, keys: tuple[str, ...]) -> str | None:
    return _told(instance, keys, "environment")


def _told(instance: Tagged, keys: tuple[str, ...], what: str) -> str | None:
    tags = {key.lower(): value for key, value in instance.tags.items()}
    for rule in keys:
        value = tags.get(rule.partition(":")[2].lower() or rule.lower(), "").strip()
        if value:
            return value
    return (instance.given or {}).get(what) or None


def _creator(instance: Tagged) -> str | None:
    """AWS writes "IAMUser:AIDA…:ada", "AssumedRole:AROA…:ada@example.org" or "Root:123456789012", which is nobody."""
    tags = {key.lower(): value for key, value in instance.tags.items()}
    for key in CREATOR_TAGS:
        value = tags.get(key, "").strip()
        if value and not (key == CREATOR_TAGS[0] and value.startswith("Root:")):
            return value.rpartition(":")[2] if key == CREATOR_TAGS[0] else value
    return None
