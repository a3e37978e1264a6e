"""What the operator writes in a simulated world, as a value that can be edited and written out as the real TOML."""

from dataclasses import dataclass, field, replace
from datetime import datetime, time
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
        local = moment.astimezone(ZoneInfo(self.zone)).time().replace(tzinfo=None)
        return self.start <= local < self.end if self.start < self.end else local >= self.start or local < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.zone}"


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
        f'hibernate_else = "{terms.hibernate_else}"',
    ]  # fmt: skip
    if terms.ended_for is not None:
        lines.append(f'job_ended = {{ for = "{terms.ended_for:.0f}s", warn = "{terms.ended_wait:.0f}s", quiet = "ignore" }}')
    if terms.scarce:
        lines.append(f'scarce = {{ types = {_list(terms.scarce)}, action = "report" }}')
    return lines


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
