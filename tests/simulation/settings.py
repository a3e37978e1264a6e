"""What the operator writes in a simulated world, as a value that can be edited and written out as the real TOML."""

from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

ACCOUNTS = ("111122223333", "444455556666")
REGIONS = ("eu-west-1", "us-east-1")
PROJECT = "sim-research"
ZONES = ("europe-west4-a", "us-central1-b")


@dataclass(frozen=True, slots=True)
class Hours:
    """Daily quiet hours, half-open, in a named zone; ``start`` after ``end`` crosses midnight."""

    start: time
    end: time
    zone: str

    def contain(self, moment: datetime) -> bool:
        local = moment.astimezone(ZoneInfo(self.zone)).time()
        return self.start <= local < self.end if self.start < self.end else local >= self.start or local < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.zone}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """The same on each of ``days`` (0 is Monday); an end at or before the start is on the day after."""

    days: tuple[int, ...]
    start: time
    end: time

    def __str__(self) -> str:
        return f"{','.join(_DAYS[day] for day in self.days)} {self.start:%H:%M}-{self.end:%H:%M}"


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Times:
    """
    One schedule of [hours]; spans in seconds. ``country``: whose holidays are off; ``off_days``: single dates that are;
    ``also_on``, ``also_off``: single stretches on the wall of ``zone``. ``quiet``: whether the policy's quiet hours count.
    """

    zone: str
    on: tuple[Stretch, ...]
    off_days: tuple[date, ...] = ()
    country: str | None = None
    also_on: tuple[tuple[datetime, datetime], ...] = ()
    also_off: tuple[tuple[datetime, datetime], ...] = ()
    only: str | None = None
    wait: float = 600.0
    idle_for: float = 900.0
    held_for: float = 900.0
    quiet: bool = False
    start_also: bool = False
    no_agent: str = "report"
    if_busy: str = "hold"

    def text(self, name: str) -> list[str]:
        holidays = [self.country] if self.country is not None else []
        holidays += [f"{day:%Y-%m-%d}" for day in self.off_days]
        lines = [
            f"[hours.{name}]", f'zone = "{self.zone}"', f"on = {_list(tuple(str(stretch) for stretch in self.on))}",
            *([f"holidays = {_list(tuple(holidays))}"] if holidays else []),
            f'warn = {{ for = "{self.wait:.0f}s"{"" if self.quiet else ", quiet = " + chr(34) + "ignore" + chr(34)} }}',
            f'idle_for = "{self.idle_for:.0f}s"', f'held_for = "{self.held_for:.0f}s"', f'no_agent = "{self.no_agent}"', f'if_busy = "{self.if_busy}"',
            *(["start_also = true"] if self.start_also and self.only != "stop" else []),
        ]  # fmt: skip
        for key, spans in (("also_on", self.also_on), ("also_off", self.also_off)):
            if spans:
                lines.append(f"{key} = {_list(tuple(f'{a:%Y-%m-%d %H:%M} to {b:%Y-%m-%d %H:%M}' for a, b in spans))}")
        return [*lines, *([f'only = "{self.only}"'] if self.only is not None else [])]


@dataclass(frozen=True, slots=True)
class Terms:
    """One policy: spans in seconds. ``tag``: the value of the machines' tag ``phase``."""

    tag: str
    mode: str = "enforce"
    action: str = "stop"
    hibernate_else: str = "stop"
    idle_for: float = 1800.0
    held_for: float = 5400.0
    wait: float = 600.0
    quiet: Hours | None = None
    via: tuple[str, ...] = ("log",)
    min_age: float = 600.0
    ended_for: float | None = None
    ended_wait: float = 600.0
    local_nvme: str = "hold"
    snooze_up_to: float = 5 * 86_400.0
    scarce: tuple[str, ...] = ()
    orchestrator: str = "hold"
    suspend_else: str = "stop"
    hours: str | None = None  # the schedule of its machines, where their tag names no other

    @property
    def takes(self) -> bool:
        """Whether it takes machines away, and does not only report."""
        return self.action != "report"

    def waits(self, cause: str) -> tuple[float, Hours | None]:
        return (self.ended_wait, None) if cause == "job-ended" else (self.wait, self.quiet)


@dataclass(frozen=True, slots=True)
class Settings:
    """``broken``: a text that the reader must refuse. ``protect``: name to (native ids, until as text or None)."""

    mode: str = "enforce"
    cycle: float = 60.0
    policies: dict[str, Terms] = field(default_factory=dict)
    protect: dict[str, tuple[tuple[str, ...], str | None]] = field(default_factory=dict)
    google: bool = False  # a project of Google Cloud is watched as well
    claim: bool = False
    verbs: tuple[str, ...] = ("stop", "start")
    per_hour: int | None = None
    per_day: int | None = None
    per_cycle: int | None = None
    usd_per_hour: float | None = None
    share_per_hour: float | None = None
    starts_per_minute: int = 5
    breaker: bool = True
    prices: dict[str, float] = field(default_factory=dict)
    also: str | None = None  # the tag value that a second policy claims as well
    broken: str | None = None
    hours: dict[str, Times] = field(default_factory=dict)

    def edit(self, policy: str, **changes: object) -> "Settings":
        return replace(self, policies={**self.policies, policy: replace(self.policies[policy], **changes)})  # type: ignore[arg-type]

    def text(self) -> str:
        lines = [
            "schema = 1", 'name = "sim"', f'mode = "{self.mode}"', f'cycle = "{self.cycle:.0f}s"',
            "[clouds.aws]", f"accounts = {_list(ACCOUNTS)}", 'role = "idle-reaper"', f"regions = {_list(REGIONS)}",
            *(("[clouds.gcp]", f'projects = ["{PROJECT}"]', 'price_list = "off"') if self.google else ()),
            "[gang]", 'same = ["tag:job-group", "placement-group"]',
            "[scope]", 'tags = { team = ["ml"] }', f"verbs = {_list(self.verbs)}",
        ]  # fmt: skip
        if self.claim:
            lines.append('claim = "reaper=sim"')
        for name, (ids, until) in sorted(self.protect.items()):
            lines += [f"[protect.{name}]", f"ids = {_list(ids)}", 'reason = "a long run"'] + ([f'until = "{until}"'] if until else [])
        limits = {
            "per_hour": self.per_hour, "per_day": self.per_day, "per_cycle": self.per_cycle, "usd_per_hour": self.usd_per_hour,
            "share_per_hour": self.share_per_hour,
        }  # fmt: skip
        stops = ", ".join(f"{key} = {value}" for key, value in limits.items() if value is not None)
        lines += ["[budget]", f"stops = {{ {stops} }}", f"starts = {{ per_minute = {self.starts_per_minute} }}"]
        lines += ['breaker = { turned_idle = "25%", within = "15m", at_least = 3 }' if self.breaker else 'breaker = "off"']
        for name, terms in self.policies.items():
            lines += _policy(name, terms, self.also)
        for name, times in self.hours.items():
            lines += times.text(name)
        if self.also is not None:
            lines += ["[policy.second]", f'when = {{ tags = {{ phase = ["{self.also}"], twice = ["yes"] }} }}', 'mode = "enforce"']
        lines += ["[channels.team]", 'webhook = "https://chat.example.com/hooks/simulated"']
        if self.prices:
            lines += ["[prices]", *(f'"{name}" = {price}' for name, price in sorted(self.prices.items()))]
        return "\n".join([*lines, *([self.broken] if self.broken is not None else [])]) + "\n"


def _policy(name: str, terms: Terms, also: str | None) -> list[str]:
    quiet = f', quiet = "{terms.quiet}"' if terms.quiet is not None else ""
    lines = [
        f"[policy.{name}]", f'when = {{ tags = {{ phase = ["{terms.tag}"] }} }}', f'mode = "{terms.mode}"', f'action = "{terms.action}"',
        f'idle = {{ for = "{terms.idle_for:.0f}s", held_for = "{terms.held_for:.0f}s", gpu_at_most = "5%" }}',
        f'warn = {{ for = "{terms.wait:.0f}s", via = {_list(terms.via)}{quiet} }}', f'min_age = "{terms.min_age:.0f}s"',
        f'local_nvme = "{terms.local_nvme}"', f'snooze = {{ up_to = "{terms.snooze_up_to:.0f}s" }}', f'orchestrator = "{terms.orchestrator}"',
        f'hibernate_else = "{terms.hibernate_else}"', *([f'suspend_else = "{terms.suspend_else}"'] if terms.action == "suspend" else []),
        *([f'hours = "{terms.hours}"'] if terms.hours is not None else []),
    ]  # fmt: skip
    if terms.ended_for is not None:
        lines.append(f'job_ended = {{ for = "{terms.ended_for:.0f}s", warn = "{terms.ended_wait:.0f}s", quiet = "ignore" }}')
    if terms.scarce:
        lines.append(f'scarce = {{ types = {_list(terms.scarce)}, action = "report" }}')
    return lines


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
