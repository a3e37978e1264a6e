"""
The document, typed: every table and key that this version knows, and nothing else.

The only module of the configuration that imports pydantic, and it is imported when a file
is read. The note under each key is its description in the JSON Schema. None: not written.
"""

from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from reaper.config import hours, pointers, values
from reaper.model.schedule import DailyHours, Once, Weekly

TEXT = {"type": "string", "minLength": 1}


def _unique(items: list[str]) -> list[str]:
    for place, item in enumerate(items):
        if item in items[:place]:
            raise values.Unreadable(f"{values.shown(item)} is written twice", "write it once")
    return items


Duration = Annotated[
    timedelta, PlainValidator(values.duration), WithJsonSchema({"type": "string", "pattern": values.DURATION_PATTERN, "examples": ["2h"]})
]
_SHARE_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": values.SHARE_PATTERN, "examples": ["5%"]},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ]
}
Share = Annotated[float, PlainValidator(values.share), WithJsonSchema(_SHARE_SCHEMA)]
ShareAboveZero = Annotated[float, PlainValidator(values.share_above_zero), WithJsonSchema(_SHARE_SCHEMA)]
ShareBelowAll = Annotated[float, PlainValidator(values.share_below_all), WithJsonSchema(_SHARE_SCHEMA)]
Count = Annotated[int, PlainValidator(values.count(0)), WithJsonSchema({"type": "integer", "minimum": 0})]
CountFromOne = Annotated[int, PlainValidator(values.count(1)), WithJsonSchema({"type": "integer", "minimum": 1})]
Amount = Annotated[float, PlainValidator(values.amount), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
Text = Annotated[str, PlainValidator(values.text), WithJsonSchema(TEXT)]
Name = Annotated[str, PlainValidator(values.name), WithJsonSchema({"type": "string", "pattern": values.NAME_PATTERN})]
Zone = Annotated[str, PlainValidator(values.zone), WithJsonSchema({**TEXT, "examples": ["Europe/Berlin"]})]
Quiet = Annotated[
    DailyHours | Literal["ignore"],
    PlainValidator(values.quiet),
    WithJsonSchema({**TEXT, "examples": ["20:00-08:00 Europe/Berlin", "ignore"]}),
]
Until = Annotated[
    datetime, PlainValidator(values.until), WithJsonSchema({**TEXT, "examples": ["2027-01-15", "2027-01-15T18:00:00+01:00"]})
]
TypeName = Annotated[str, PlainValidator(pointers.instance_type), WithJsonSchema({**TEXT, "examples": ["p5.48xlarge"]})]
TagKey = Annotated[str, PlainValidator(pointers.tag_key), WithJsonSchema(TEXT)]
_TagValue = Annotated[str, PlainValidator(pointers.tag_value), WithJsonSchema(TEXT)]
_Id = Annotated[str, PlainValidator(pointers.instance_id), WithJsonSchema({**TEXT, "examples": ["i-0a1b2c3d4e5f60718"]})]
_Account = Annotated[str, PlainValidator(pointers.account), WithJsonSchema({"type": "string", "pattern": "^[0-9]{12}$"})]
_Region = Annotated[str, PlainValidator(pointers.region), WithJsonSchema({**TEXT, "examples": ["us-east-1"]})]
_Role = Annotated[str, PlainValidator(pointers.role), WithJsonSchema({**TEXT, "examples": ["idle-reaper", "none"]})]
_RoleArn = Annotated[str, PlainValidator(pointers.role_arn), WithJsonSchema({**TEXT, "examples": ["arn:aws:iam::123456789012:role/hub"]})]
_ExternalId = Annotated[str, PlainValidator(pointers.external_id), WithJsonSchema({**TEXT, "maxLength": 1224})]
_SessionName = Annotated[str, PlainValidator(pointers.session_name), WithJsonSchema({**TEXT, "maxLength": 64})]
_Project = Annotated[str, PlainValidator(pointers.project), WithJsonSchema({**TEXT, "examples": ["ml-research"]})]
_Parent = Annotated[str, PlainValidator(pointers.gcp_parent), WithJsonSchema({**TEXT, "examples": ["folders/123456789012"]})]
_GcpZone = Annotated[str, PlainValidator(pointers.gcp_zone), WithJsonSchema({**TEXT, "examples": ["us-central1-a"]})]
_ServiceAccount = Annotated[
    str, PlainValidator(pointers.service_account), WithJsonSchema({**TEXT, "examples": ["idle-reaper@ops.iam.gserviceaccount.com"]})
]
_GangRule = Annotated[str, PlainValidator(pointers.gang_rule), WithJsonSchema({**TEXT, "examples": ["tag:job", "placement-group"]})]
_OwnerRule = Annotated[str, PlainValidator(pointers.owner_rule), WithJsonSchema({**TEXT, "examples": ["tag:owner"]})]
_Path = Annotated[str, PlainValidator(pointers.scratch_path), WithJsonSchema({"type": "string", "pattern": "^/"})]
RISKS = ("address", "capacity", "key", "placement")
_Risk = Annotated[str, PlainValidator(values.choice(*RISKS)), WithJsonSchema({"enum": list(RISKS)})]
VERBS = ("stop", "start", "snapshot", "terminate")
_Verb = Annotated[str, PlainValidator(values.choice(*VERBS, later={"delete": "the verb delete is"})), WithJsonSchema({"enum": list(VERBS)})]
ACTIONS = ("stop", "report", "suspend", "hibernate", "stop-and-snapshot", "terminate")
_LATER_ACTIONS = {
    word: f"the action {word} is"
    for word in ("snapshot", "snapshot-and-delete", "scale-to-zero", "delete")
}

_Weekly = Annotated[tuple[Weekly, ...], PlainValidator(hours.weekly), WithJsonSchema({**TEXT, "examples": ["mon-fri 08:00-19:00"]})]
_Once = Annotated[Once, PlainValidator(hours.once), WithJsonSchema({**TEXT, "examples": ["2026-12-05 19:00 to 2026-12-06 02:00"]})]
_Holiday = Annotated[str | date, PlainValidator(hours.holiday), WithJsonSchema({**TEXT, "examples": ["DE-BE", "2026-12-24"]})]
_Flag = Annotated[bool, PlainValidator(hours.flag), WithJsonSchema({"type": "boolean"})]
_StartOrder = Annotated[str, PlainValidator(hours.order_tag), WithJsonSchema({**TEXT, "examples": ["tag:start-order"]})]
_ScheduleName = Annotated[Name, AfterValidator(hours.schedule_name)]

Tags = Annotated[
    dict[TagKey, Annotated[list[_TagValue], Field(min_length=1), AfterValidator(_unique)]], Field(min_length=1)
]
Types = Annotated[list[TypeName], Field(min_length=1), AfterValidator(_unique)]
Ids = Annotated[list[_Id], Field(min_length=1), AfterValidator(_unique)]
ModeWord = Annotated[str, PlainValidator(values.choice("observe", "enforce")), WithJsonSchema({"enum": ["observe", "enforce"]})]
OnlyReport = Annotated[str, PlainValidator(values.choice("report")), WithJsonSchema({"enum": ["report"]})]


class Table(BaseModel):
    """A table refuses every key it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)


class SelectorTable(Table):
    """Which machines. Every table and list that is written must match; a list matches when one of its values does."""

    tags: Tags | None = None
    """Tag key to the values that match. The case of both counts."""
    types: Types | None = None
    """Instance types, whole."""
    ids: Ids | None = None
    """Resource ids or native instance ids."""


class AwsAccountTable(Table):
    """What differs in one account from what [clouds.aws] says of all."""

    role: _Role | None = None
    """The role to assume in it; "none" for the account whose credentials are at hand."""
    external_id: _ExternalId | None = None
    session_name: _SessionName | None = None
    via: Annotated[list[_RoleArn], Field(min_length=1), AfterValidator(_unique)] | None = None
    regions: Annotated[list[_Region], Field(min_length=1), AfterValidator(_unique)] | None = None
    owner: Text | None = None
    """Who owns a machine in it whose tags do not say."""
    project: Text | None = None
    environment: Text | None = None


class AwsTable(Table):
    """AWS accounts, with the credentials that the process finds and a role in each account."""

    regions: Annotated[list[_Region], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Regions to list. Not written: those each account has switched on."""
    accounts: Annotated[list[_Account], Field(min_length=1), AfterValidator(_unique)] | None = None
    """The accounts to watch. Not written: the one the credentials belong to."""
    role: _Role | None = None
    """The role to assume in each account, by name. More than one account needs one."""
    external_id: _ExternalId | None = None
    """What the role's trust policy asks for, if it does."""
    session_name: _SessionName | None = None
    """How our sessions are called in CloudTrail. Default "idle-reaper"."""
    via: Annotated[list[_RoleArn], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Whole ARNs of roles to assume first, in order, where the accounts trust only such a one."""
    account: dict[_Account, AwsAccountTable] = Field(default_factory=dict)
    """What is different in single accounts."""
    price_list: Annotated[str, PlainValidator(values.choice("ask", "off")), WithJsonSchema({"enum": ["ask", "off"]})] | None = None
    """Whether AWS is asked what types cost and which are reserved. Default "ask"; a refusal does no harm."""
    price_file: Annotated[str, PlainValidator(pointers.absolute), WithJsonSchema({"type": "string", "pattern": "^/"})] | None = None
    """Where list prices are kept, {"eu-west-1": {"g5.xlarge": 1.123}}; used where AWS may not be asked. [prices] come first."""
    endpoint: Annotated[str, PlainValidator(pointers.endpoint), WithJsonSchema({**TEXT, "format": "uri"})] | None = None
    """Sends every AWS call to this address; for tests and the demo."""


class GcpProjectTable(Table):
    """What is said of a whole project."""

    owner: Text | None = None
    """Who owns a machine in it whose labels do not say."""
    project: Text | None = None
    environment: Text | None = None


class GcpTable(Table):
    """Projects of Google Cloud, with the credentials that the process finds or a service account that it impersonates."""

    projects: Annotated[list[_Project], Field(min_length=1), AfterValidator(_unique)] | None = None
    """The projects to watch, by their ids. One at least, or a folder in below."""
    below: Annotated[list[_Parent], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Folders and organisations, "folders/123456789012", whose projects are watched, those of the folders in them too."""
    project: dict[_Project, GcpProjectTable] = Field(default_factory=dict)
    """Whose single projects are."""
    zones: Annotated[list[_GcpZone], Field(min_length=1), AfterValidator(_unique)] | None = None
    """The only zones to look at. Not written: all of them."""
    service_account: _ServiceAccount | None = None
    """The service account to impersonate; "{project}" in it stands for the project's id. Not written: the credentials at hand."""
    local_ssd: Annotated[
        str, PlainValidator(values.choice("preserve", "discard")), WithJsonSchema({"enum": ["preserve", "discard"]})
    ] | None = None
    """
    What a stop does with the content of local SSDs, where the policy's local_nvme lets a machine with some be stopped at all.
    "preserve" (the default) has Google save it first, which takes longer and which it refuses for some types.
    """
    deletion_protection: Annotated[
        str, PlainValidator(values.choice("hold", "ignore")), WithJsonSchema({"enum": ["hold", "ignore"]})
    ] | None = None
    """
    Google has no protection from being stopped. "hold" (the default) takes deletion protection for one: it is the only way to
    say that a machine is not to be touched. "ignore" where it is switched on for everything as a matter of course.
    """
    price_list: Annotated[str, PlainValidator(values.choice("ask", "off")), WithJsonSchema({"enum": ["ask", "off"]})] | None = None
    """Whether Google is asked what machines cost and what commitments there are. Default "ask"; a refusal does no harm."""
    price_file: Annotated[str, PlainValidator(pointers.absolute), WithJsonSchema({"type": "string", "pattern": "^/"})] | None = None
    """
    Where list prices are kept, {"us-central1": {"OnDemand": {"core n1": 0.0316, "ram n1": 0.0042, "gpu v100": 2.48}}}; used where
    Google may not be asked. [prices] come first.
    """
    endpoint: Annotated[str, PlainValidator(pointers.endpoint), WithJsonSchema({**TEXT, "format": "uri"})] | None = None
    """Sends every call of Compute Engine to this address; for private endpoints, tests and the demo."""


class CloudsTable(Table):
    aws: AwsTable | None = None
    """Amazon Web Services."""
    gcp: GcpTable | None = None
    """Google Cloud."""


class GangTable(Table):
    same: Annotated[list[_GangRule], Field(min_length=1), AfterValidator(_unique)]
    """What machines of one job share: "tag:KEY" or "placement-group". One busy member holds all."""


class ScopeTable(SelectorTable):
    """Eligible: what may be considered at all. Enforcing needs one with tags, types or ids, and the verb stop."""

    verbs: Annotated[list[_Verb], Field(min_length=1), AfterValidator(_unique)] | None = None
    """What may be done. A verb not listed has no object that can do it."""
    claim: Annotated[tuple[str, str], PlainValidator(pointers.claim), WithJsonSchema({**TEXT, "pattern": "^[^=]+=[^=]+$"})] | None = None
    """The tag "key=value" that lets this reaper act, where two share an account. The operator sets it."""


class ProtectTable(SelectorTable):
    """Protected: what may never be touched. Must select something and say why."""

    reason: Text
    """Why, for whoever reads the plan."""
    until: Until | None = None
    """When it ends: a date (that whole day still counts, everywhere on earth) or a time with its offset. Not written: never."""


class CountTable(Table):
    """Limits of one verb. A key that is not written is unlimited, once this table is; the strictest wins."""

    per_minute: Count | None = None
    """Actions in any minute."""
    per_hour: Count | None = None
    """Actions in an hour of the zone."""
    per_day: Count | None = None
    """Actions on a day of the zone."""
    per_cycle: Count | None = None
    """Actions in one cycle."""
    usd_per_hour: Amount | None = None
    """Dollars an hour of machines taken down within an hour."""
    share_per_hour: Share | None = None
    """Share of the running machines in scope, per hour."""
    at_least: CountFromOne | None = None
    """What share_per_hour never goes below. Default 1, so that small fleets work at all."""
    zone: Zone | None = None
    """Where hours and days begin. Default UTC."""


class BreakerTable(Table):
    """Holds everything that turned idle at once: that is rather a broken meter than an idle fleet."""

    turned_idle: ShareAboveZero | None = None
    """Share of the fleet. Default 25 %."""
    within: Duration | None = None
    """Default 15 minutes."""
    at_least: CountFromOne | None = None
    """Machines. Default 3."""


def _table_or_off(value: object) -> str:
    return "<table>" if isinstance(value, dict | Table) else "<off>"


Off = Annotated[Literal["off"], PlainValidator(values.choice("off")), WithJsonSchema({"enum": ["off"]})]
Breaker = Annotated[Annotated[BreakerTable, Tag("<table>")] | Annotated[Off, Tag("<off>")], Discriminator(_table_or_off)]


class BudgetTable(Table):
    stops: CountTable | None = None
    """Default: 4 an hour, 20 a day, 5 % of the fleet an hour."""
    starts: CountTable | None = None
    """Default: 5 a minute."""
    snapshots: CountTable | None = None
    """Machines whose disks are snapshotted, beside the budget of stops; a machine counts once. Default: 20 a day."""
    deletes: CountTable | None = None
    """Machines that are ended, beside the budgets of stops and snapshots. Default: 5 a day."""
    breaker: Breaker | None = None
    """The fleet breaker. Switching it off must be written out: "off"."""


class IdleTable(Table):
    for_: Duration | None = Field(default=None, alias="for")
    """How long a machine must have been idle. Default 2 hours; at least 5 minutes."""
    gpu_at_most: ShareBelowAll | None = None
    """Every GPU's peak at or below this is idle. Default 5 %."""
    held_for: Duration | None = None
    """
    The longer term of a machine whose GPU memory is taken while nothing runs, or on which a launcher lives between two of its jobs (a
    sweep's shell, torchrun). Default 10 hours.
    """


class WarnTable(Table):
    for_: Duration | None = Field(default=None, alias="for")
    """How long people have after a channel accepted the warning. Default 1 hour; at least 5 minutes."""
    quiet: Quiet | None = None
    """Hours that do not count, as "20:00-08:00 Europe/Berlin". Default none; "ignore" lifts inherited ones."""
    via: Annotated[list[Name], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Channels: "log" or names of [channels]. Default the log alone."""


class JobEndedTable(Table):
    """
    Acting on the end of a job. It counts when the last GPU process and its launcher (a sweep's shell, torchrun, ray, a step
    of slurm) are gone, no other job began, and nothing has run since. Where that cannot be seen, it does not count.
    """

    for_: Duration | None = Field(default=None, alias="for")
    """How long ago the last job must have ended. Default 45 minutes; at least 5."""
    warn: Duration | None = None
    """How long people have after this warning. Default that of warn; at least 5 minutes."""
    quiet: Quiet | None = None
    """Hours that do not count of it. Default those of warn; "ignore" for none: at night, too."""


class BusyTable(Table):
    """Sustained over a report window, at or above one of these is work."""

    cpu: ShareAboveZero | None = None
    """Share of all cores. Default 20 %."""
    disk_mib_s: Amount | None = None
    """MiB a second read and written. Default 5."""
    net_mib_s: Amount | None = None
    """MiB a second received and sent. Default 5."""


JobEnded = Annotated[Annotated[JobEndedTable, Tag("<table>")] | Annotated[Off, Tag("<off>")], Discriminator(_table_or_off)]


class SnoozeTable(Table):
    up_to: Duration | None = None
    """The longest snooze a person may ask for. Default 5 days."""


class ScarceTable(Table):
    """Types you may not get back after a stop."""

    types: Types
    """Instance types, whole."""
    action: OnlyReport
    """Only "report" in this version."""


class HoursWarnTable(Table):
    for_: Duration | None = Field(default=None, alias="for")
    """How long before the end of hours people are warned, and how long they have. Default 30 minutes; at least 5."""
    quiet: Quiet | None = None
    """Hours that do not count of it. Default the policy's own; "ignore" for none, so that evenings count."""


class HoursTable(Table):
    """
    When machines are wanted: stopped outside these hours once they are idle, and what was stopped is started again before they
    begin. A policy names it by hours, a machine by its tag reaper-hours, which comes first; "never" stands for none.
    """

    zone: Zone
    """Where the times are read from the wall."""
    on: Annotated[list[_Weekly], Field(min_length=1)]
    """
    "mon-fri 08:00-19:00" for each of these days; an end before the start is on the next day; "fri 18:00-mon 06:00" goes over
    days. The start counts, the end does not. An interval belongs to the day on which it begins.
    """
    holidays: Annotated[list[_Holiday], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Days on which no interval begins: of a country ("US"), a country and region ("DE-BE"), and single dates ("2026-12-24")."""
    also_on: Annotated[list[_Once], Field(min_length=1)] | None = None
    """Single stretches that are on, whatever the weekday or holiday: "2026-12-05 09:00-17:00"."""
    also_off: Annotated[list[_Once], Field(min_length=1)] | None = None
    """Single stretches that are off: "2026-12-24 12:00 to 2027-01-02 08:00", or whole days, "2026-12-24 to 2027-01-01"."""
    only: Annotated[str, PlainValidator(values.choice("stop", "start")), WithJsonSchema({"enum": ["stop", "start"]})] | None = None
    """"stop" never starts anything, "start" never stops anything. Not written: both."""
    warn: HoursWarnTable | None = None
    """How people are told before hours end."""
    idle_for: Duration | None = None
    """How long idle is enough outside hours. Default 15 minutes; at least 5."""
    held_for: Duration | None = None
    """The same of a machine whose GPU memory is taken. Default as idle_for."""
    if_busy: Annotated[str, PlainValidator(values.choice("hold", "stop")), WithJsonSchema({"enum": ["hold", "stop"]})] | None = None
    """A machine that works outside hours. Default "hold"; "stop" stops it at work, and its work is lost."""
    if_unknown: Annotated[str, PlainValidator(values.choice("hold")), WithJsonSchema({"enum": ["hold"]})] | None = None
    """A machine of which it is not known whether it works. It is always held."""
    no_agent: Annotated[
        str, PlainValidator(values.choice("report", "warn-and-stop")), WithJsonSchema({"enum": ["report", "warn-and-stop"]})
    ] | None = None
    """A machine that never had an agent. Default "report"."""
    start_also: _Flag | None = None
    """Whether what was stopped within hours is started, too, when they next begin. Default false."""
    start_order: _StartOrder | None = None
    """The tag with a number that says which machines of one job start first. Default "tag:reaper-start-order"."""


class TermsTable(Table):
    """The terms that [defaults] and each policy can write. A policy inherits key by key, also inside idle, warn and busy."""

    action: Annotated[
        str, PlainValidator(values.choice(*ACTIONS, later=_LATER_ACTIONS)), WithJsonSchema({"enum": list(ACTIONS)})
    ] | None = None
    """
    What is done with an idle machine. Default "stop". "terminate" ends it once it is stopped and the snapshots of all its disks
    are verified; it has to be written in the policy itself, with its verb in [scope].
    """
    hibernate_else: Annotated[str, PlainValidator(values.choice("stop", "hold")), WithJsonSchema({"enum": ["stop", "hold"]})] | None = None
    """What is done with a machine that was not launched for hibernation, under the action "hibernate". Default "stop"."""
    suspend_else: Annotated[str, PlainValidator(values.choice("stop", "hold")), WithJsonSchema({"enum": ["stop", "hold"]})] | None = None
    """
    What is done under the action "suspend" with a machine that its cloud does not suspend (on Google those with GPUs, local SSDs
    or more than 208 GB of memory; on AWS every one). Default "stop".
    """
    idle: IdleTable | None = None
    """When a machine counts as idle."""
    warn: WarnTable | None = None
    """How people are told before anything happens."""
    busy: BusyTable | None = None
    """What counts as work beside the GPU."""
    hours: Name | None = None
    """The schedule of [hours] that its machines are under, where their tag names no other. "never" lifts an inherited one."""
    job_ended: JobEnded | None = None
    """A shorter term after the end of a job. Not written: none; "off" lifts an inherited one."""
    min_age: Duration | None = None
    """A younger machine is left alone. Default 30 minutes; at least 5."""
    starved_above: ShareAboveZero | None = None
    """A job that waits for data for more than this share of the time is a slow job. Default 30 %."""
    orchestrator: Annotated[str, PlainValidator(values.choice("hold", "ignore")), WithJsonSchema({"enum": ["hold", "ignore"]})] | None = None
    """A living slurmd, kubelet, raylet or nomad on the host. Default "hold"."""
    unknown_phase: OnlyReport | None = None
    """A tag value that no policy names never acts."""
    no_agent: Annotated[
        str,
        PlainValidator(values.choice("report", later={"warn-and-stop": "stopping machines that never had an agent is"})),
        WithJsonSchema({"enum": ["report"]}),
    ] | None = None
    """A machine that never had an agent. Only "report" in this version."""
    local_nvme: Annotated[
        str, PlainValidator(values.choice("hold", "if-empty", "discard")), WithJsonSchema({"enum": ["hold", "if-empty", "discard"]})
    ] | None = None
    """
    Disks that a stop wipes. "hold" (the default) never stops a machine that has some; "if-empty" does when the agent shows
    each one mounted, at most 2 % used and not written to within the term; "discard" whatever is on them.
    """
    local_scratch: Annotated[list[_Path], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Where such a disk is mounted, how full it is means nothing in these folders: their content may go."""
    reserved: Annotated[str, PlainValidator(values.choice("hold", "ignore")), WithJsonSchema({"enum": ["hold", "ignore"]})] | None = None
    """A machine in a capacity reservation, which is paid for either way. Default "hold"."""
    restart_hold: Annotated[list[_Risk], Field(min_length=1), AfterValidator(_unique)] | None = None
    """
    What may not come back as it was after a stop: "address" (it changes), "capacity" (there may be none), "key" (of an encrypted
    disk), "placement" (a placement group has to find room for it). Those written here hold; the others are told in the warning.
    """
    snooze: SnoozeTable | None = None
    """What people may ask for."""
    owner: Annotated[list[_OwnerRule], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Where the owner's name stands, in order and in any case. Default "tag:owner"; then the account's own, then who made it."""
    project: Annotated[list[_OwnerRule], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Where the project stands. Default "tag:project"."""
    environment: Annotated[list[_OwnerRule], Field(min_length=1), AfterValidator(_unique)] | None = None
    """Where the environment stands. Default "tag:environment" or "tag:env"."""
    scarce: ScarceTable | None = None
    """Machines that are only reported, because the cloud may not give them back."""


class DefaultsTable(TermsTable):
    """Inherited by every policy."""


class PolicyTable(TermsTable):
    """One life of a machine. Exactly one policy matches a machine; two hold it, none only reports it."""

    when: SelectorTable | None = None
    """Which machines. Not written: all, and then no other policy may stand beside it."""
    mode: ModeWord | None = None
    """Default "observe". Enforcing takes the same word at the top of the document."""


class ChannelTable(Table):
    """Exactly one of the three. The address is a secret and is never shown."""

    webhook: Annotated[str, PlainValidator(pointers.webhook), WithJsonSchema({"type": "string", "pattern": "^https?://"})] | None = None
    """Where warnings are POSTed as JSON."""
    webhook_file: Annotated[str, PlainValidator(pointers.secret_file), WithJsonSchema({"type": "string", "pattern": "^/"})] | None = None
    """A file that holds the address."""
    webhook_env: Annotated[
        str, PlainValidator(pointers.secret_env), WithJsonSchema({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"})
    ] | None = None
    """An environment variable that holds the address."""


def _version(value: object) -> int:
    if value != 1 or not isinstance(value, int) or isinstance(value, bool):
        raise values.Unreadable(f"{values.shown(value)} is not a schema that this version knows", "write schema = 1")
    return 1


class Document(Table):
    """The configuration of Idle Reaper: one TOML or JSON file, or a folder of them."""

    version: Annotated[int, PlainValidator(_version), WithJsonSchema({"const": 1})] = Field(alias="schema")
    """Which edition of the vocabulary this document is written in."""
    name: Name | None = None
    """Who claims a machine when two reapers share an account. Enforcing needs one."""
    mode: ModeWord | None = None
    """The ceiling. Default "observe"; a policy must also say "enforce"."""
    cycle: Duration | None = None
    """How often everything is looked at. Default 1 minute; 5 seconds to 10 minutes."""
    clouds: CloudsTable | None = None
    """Where machines are. Not written: AWS with the credentials that the process finds."""
    gang: GangTable | None = None
    """Machines of one job: all idle, or none is."""
    scope: ScopeTable | None = None
    """What may be considered at all."""
    protect: dict[Name, ProtectTable] = Field(default_factory=dict)
    """What may never be touched."""
    budget: BudgetTable | None = None
    """How much may happen."""
    defaults: DefaultsTable | None = None
    """Terms that every policy inherits."""
    policy: dict[Name, PolicyTable] = Field(default_factory=dict)
    """The lives of machines."""
    hours: dict[_ScheduleName, HoursTable] = Field(default_factory=dict)
    """When machines are wanted, and when not."""
    channels: dict[Name, ChannelTable] = Field(default_factory=dict)
    """Where warnings go, beside the log."""
    prices: dict[TypeName, Amount] = Field(default_factory=dict)
    """Dollars an hour by instance type, where your price is another than the list's."""
