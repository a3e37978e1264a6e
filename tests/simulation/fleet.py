"""Draws a world from a seed: machines with their lives and quirks, what the operator wrote, and the weather."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta

from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from reaper.model.resource import ResourceId
from tests.simulation.agents import MODELS, Agent
from tests.simulation.hours import NEVER, ORDER_TAG, TAG
from tests.simulation.lives import DAY, LIVES, MINUTE, USUAL, Pressure, of_one_job
from tests.simulation.settings import ACCOUNTS, PROJECT, REGIONS, ZONES, Hours, Settings, Stretch, Terms, Times
from tests.simulation.truth import Life, Track

WEATHERS = ("calm", "hiccups", "storm")

TYPES = {
    "p3.2xlarge": ("V100", 1), "g5.xlarge": ("A10G", 1), "g4dn.xlarge": ("T4", 1), "g6e.xlarge": ("L40S", 1), "p3.8xlarge": ("V100", 4),
    "g5.12xlarge": ("A10G", 4), "p5.48xlarge": ("H100", 8),
}  # fmt: skip
GOOGLES = {"n1-standard-8": ("T4", 1), "g2-standard-8": ("L4", 1), "a2-highgpu-1g": ("A100-SXM4-40GB", 1), "g2-standard-24": ("L4", 2)}
PRICES = {"n1-standard-8": 0.73, "g2-standard-8": 0.85, "a2-highgpu-1g": 3.67, "g2-standard-24": 2.0, "p3.2xlarge": 3.06, "g5.xlarge": 1.01, "g4dn.xlarge": 0.53, "g6e.xlarge": 1.86, "p3.8xlarge": 12.24, "g5.12xlarge": 5.67, "p5.48xlarge": 55.0}

BASES = (datetime(2026, 3, 2, 6, tzinfo=UTC), datetime(2026, 3, 28, 18, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 6, 12, 15, tzinfo=UTC))
"""A Monday; the nights on which clocks change in Europe, both ways; a Friday."""

QUIRKS = {
    "no-agent": 0.03, "shared-token": 0.03, "spot": 0.03, "local-disk": 0.06, "managed": 0.03, "claimed": 0.03, "out-of-scope": 0.03, "protected": 0.03,
    "keep-until": 0.05, "scarce": 0.03, "stop-protected": 0.03, "orchestrator": 0.03, "hook": 0.05, "two-policies": 0.03, "launch-unknown": 0.01,
    "hibernates": 0.15, "end-protected": 0.05, "hidden-owner": 0.03, "capacity-block": 0.01, "reserved": 0.02, "bad-key": 0.02,
}  # fmt: skip
"""How likely each is in an ordinary machine. A planted fault raises the odds of the lives that meet it, nothing else."""


@dataclass(slots=True)
class Machine:
    """``group``: its gang. ``comes_back``: when its people want to work on it again, while it is off. ``heard``: see judge."""

    id: ResourceId
    track: Track
    agent: Agent | None
    policy: str
    life: str
    quirks: frozenset[str]
    owner: str
    group: str | None = None
    comes_back: float | None = None
    heard: list["Heard"] = field(default_factory=list)
    warned: list[tuple[float, str]] = field(default_factory=list)
    snoozed: list[tuple[float, float]] = field(default_factory=list)
    clone: Agent | None = None
    forged: bool = False
    silent_since: float | None = None
    sleeps: bool = False  # suspended, and not stopped: the same boot goes on


@dataclass(frozen=True, slots=True)
class Heard:
    """A window that reached a door at ``at``. ``believable``: of the machine's own agent, under its own token."""

    start: float
    end: float
    at: float
    believable: bool
    origin: str
    ails: frozenset[str]
    hook: str | None
    held: bool


@dataclass(slots=True)
class Fleet:
    seed: int
    focus: frozenset[str]
    weather: str
    base: datetime
    days: float
    settings: Settings
    machines: list[Machine]
    dice: random.Random
    instances: list[Instance]

    def odds(self, name: str, usual: float) -> bool:
        return self.dice.random() < (max(usual, 0.65) if name in self.focus else usual)


def draw(seed: int, focus: frozenset[str] = frozenset()) -> Fleet:
    """``focus``: kinds of lives and misfortunes to draw more often; "calm" and the like fix the weather."""
    dice = random.Random(f"fleet {seed}")
    weather = dice.choices(WEATHERS, (4, 3, 5))[0]
    weather = next((w for w in WEATHERS if w in focus), weather)
    fleet = Fleet(seed, focus, weather, dice.choice(BASES) + timedelta(minutes=dice.randrange(0, 720)), 3.0, Settings(), [], dice, [])
    size = dice.choices((dice.randint(5, 7), dice.randint(8, 12), dice.randint(15, 40)), (84, 14, 2))[0]
    fleet.days = 3.0 if size > 5 or dice.random() < 0.93 else dice.uniform(5.0, 30.0)
    if "small" in focus:
        size, fleet.days = dice.randint(5, 6), 2.0
    if "short" in focus:
        fleet.days = 0.5
    fleet.settings = _settings(fleet)
    group = 0
    while len(fleet.machines) < size:
        if fleet.odds("gang", 0.10) and size - len(fleet.machines) >= 2:
            group += 1
            _gang(fleet, f"job-{group}", dice.randint(2, min(5, size - len(fleet.machines))))
        else:
            _add(fleet, None, None)
    _under_schedules(fleet, random.Random(f"hours {seed}"))
    return fleet


def _settings(fleet: Fleet) -> Settings:
    dice = fleet.dice
    quiet = Hours(time(20), time(8), "Europe/Berlin") if fleet.odds("quiet", 0.25) else None
    if quiet is not None and dice.random() < 0.5:
        quiet = Hours(time(12), time(15, 30), "UTC")
    wait = dice.choice((5, 5, 8, 10, 15)) * MINUTE

    def terms(tag: str, idle: tuple[int, ...], held: tuple[int, ...], **more: object) -> Terms:
        via = dice.choice((("log",), ("team",), ("team", "log")))
        local = dice.choice(("hold", "if-empty", "discard"))
        return Terms(
            tag, idle_for=dice.choice(idle) * MINUTE, held_for=dice.choice(held) * MINUTE, wait=wait, quiet=quiet, via=via,
            min_age=(120 if fleet.odds("young", 0.05) else dice.choice((5, 10, 20))) * MINUTE, local_nvme=local, snooze_up_to=dice.choice((1, 2, 5)) * DAY, scarce=("p5.48xlarge",), **more,
        )  # type: ignore[arg-type] # fmt: skip

    def action() -> str:
        wanted = [word for word in ("hibernate", "stop-and-snapshot", "terminate") if word in fleet.focus]
        return dice.choice(wanted) if wanted else dice.choices(("stop", "hibernate", "stop-and-snapshot", "terminate"), (16, 2, 3, 3))[0]

    ended = dice.choice((5, 10, 20)) * MINUTE if fleet.odds("job-ended", 0.5) else None
    policies = {
        "exploration": terms("exploration", (20, 30, 60), (60, 90, 180), action=action(), hibernate_else=dice.choice(("stop", "hold"))),
        "training": terms("training", (30, 60, 90), (90, 120, 240), ended_for=ended, ended_wait=dice.choice((5, 8)) * MINUTE, action=action()),
        "evaluation": terms("evaluation", (15, 20, 40), (45, 60, 90), action=action()),
        "serving": terms("serving", (30,), (60,), action="report"),
        "watched": terms("watched", (20,), (60,), mode="observe"),
    }
    settings = Settings(
        mode="observe" if fleet.odds("starts-observing", 0.10) else "enforce", cycle=dice.choice((60.0, 120.0, 120.0, 180.0)), policies=policies,
        claim=fleet.odds("claim", 0.15), also="exploration" if "two-policies" in fleet.focus or dice.random() < 0.3 else None,
        prices=PRICES if dice.random() < 0.7 else {"g5.xlarge": 1.01}, starts_per_minute=dice.choice((1, 2, 5)),
        breaker=fleet.odds("wedge", 0.5), google=fleet.odds("google", 0.4), verbs=("stop", "start", "snapshot", "terminate"),
    )  # fmt: skip
    tight = fleet.odds("budget", 0.25)
    return replace(
        settings,
        per_hour=dice.choice((1, 2, 3)) if tight else 20,
        per_day=dice.choice((3, 6, 12)) if tight and dice.random() < 0.5 else None,
        per_cycle=dice.choice((1, 2)) if dice.random() < 0.3 else None,
        usd_per_hour=dice.choice((2.0, 6.0, 60.0)) if "usd" in fleet.focus or (tight and dice.random() < 0.4) else None,
        share_per_hour=dice.choice((0.2, 0.5)) if "share" in fleet.focus or (tight and dice.random() < 0.4) else None,
    )


def _gang(fleet: Fleet, name: str, size: int) -> None:
    """Machines of one job, wherever in one account: a tag's value means nothing across accounts."""
    policy = fleet.dice.choice(("training", "exploration"))
    lead = fleet.dice.randrange(1 << 30)
    account = PROJECT if fleet.settings.google and fleet.dice.random() < 0.4 else fleet.dice.choice(ACCOUNTS)
    type_ = fleet.dice.choice(("n1-standard-8", "g2-standard-8") if account == PROJECT else ("p3.2xlarge", "g5.xlarge"))
    for rank in range(size):
        pressure = _pressure(fleet.settings.policies[policy])
        life = of_one_job(random.Random(lead), pressure, 1, rank, size)
        _add(fleet, name, (policy, type_, life), account)


def _silicon(type_: str) -> tuple[str, int]:
    return GOOGLES[type_] if type_ in GOOGLES else TYPES[type_]


def _pressure(terms: Terms) -> Pressure:
    return Pressure(terms.idle_for, terms.held_for, terms.wait)


def _add(fleet: Fleet, group: str | None, given: tuple[str, str, Life] | None, account: str | None = None) -> None:
    dice, n = fleet.dice, len(fleet.machines)
    quirks = frozenset() if given is not None else frozenset(name for name, usual in QUIRKS.items() if fleet.odds(name if name != "hibernates" else "hibernate", usual) and dice.random() < 0.8)
    policy = dice.choices(("exploration", "training", "evaluation", "serving", "watched", "nobody's"), (40, 30, 20, 3, 4, 3))[0]
    if quirks & {"two-policies"}:
        policy = "exploration"
    google = account == PROJECT or (account is None and fleet.settings.google and not quirks & {"scarce", "spot"} and dice.random() < 0.4)
    type_ = dice.choice(list(GOOGLES)) if google else "p5.48xlarge" if "scarce" in quirks else dice.choices(list(TYPES)[:6], (6, 6, 3, 3, 1, 1))[0]
    model, gpus = _silicon(type_)
    native = f"9{fleet.seed % 4096:04d}{n:05d}" if google else f"i-{fleet.seed % 4096:03x}{n:05x}"
    home = ("gcp", PROJECT, dice.choices(ZONES, (3, 1))[0]) if google else ("aws", account or dice.choices(ACCOUNTS, (4, 1))[0], dice.choices(REGIONS, (3, 1))[0])
    id = ResourceId(*home, "instance", native)
    life_name = dice.choices(list(USUAL), [9 if name in fleet.focus else usual if not fleet.focus & USUAL.keys() else 0.3 for name, usual in USUAL.items()])[0]
    dice_of_life = random.Random(f"life {fleet.seed} {n}")
    if given is not None:
        policy, type_, life = given
        model, gpus = _silicon(type_)
        life_name = "gang"
    else:
        terms = fleet.settings.policies.get(policy, fleet.settings.policies["exploration"])
        make: Callable[..., Life] = LIVES[life_name]
        life = make(dice_of_life, _pressure(terms), gpus)
    track = Track(life, gpus, at=-30 * MINUTE)
    owner = dice.choice(("ada", "grace", "alan"))
    agent = None
    if "no-agent" not in quirks:
        agent = Agent(str(id), track, random.Random(f"agent {fleet.seed} {n}"), MODELS[model], shared="shared-token" in quirks)
        if "local-disk" in quirks:
            agent.local_disks, agent.disk_used = dice.choice((1, 2)), dice.choice((0.0, 0.01, 0.4))
            agent.disk_written_at = dice.uniform(-2 * DAY, 1.5 * DAY) if dice.random() < 0.5 else -2 * DAY
        if "hook" in quirks:
            agent.hook = dice.choice(("ok", "ok", "not-now", "nothing"))
        if "orchestrator" in quirks:
            agent.orchestrators = (dice.choice(("slurmd", "kubelet", "raylet")),)
    tags = {"phase": policy, "owner": owner, "team": "web" if "out-of-scope" in quirks else "ml"}
    if group is not None:
        tags["job-group" if dice.random() < 0.8 else "Job-Group"] = group
    if fleet.settings.claim:
        tags["reaper"] = "sim"
    if "claimed" in quirks:
        tags["Reaper" if dice.random() < 0.3 else "reaper"] = "team-b"
    if "two-policies" in quirks:
        tags["twice"] = "yes"
    fleet.instances.append(
        Instance(
            id=id, type=type_, state=InstanceState.RUNNING, name=f"{life_name}-{n}", tags=tags,
            launched_at=None if "launch-unknown" in quirks else fleet.base - timedelta(days=1), gpus=gpus, gpu_model=model,
            lifecycle=Lifecycle.SPOT if "spot" in quirks else Lifecycle.CAPACITY_BLOCK if "capacity-block" in quirks else Lifecycle.ON_DEMAND, local_store="local-disk" in quirks,
            local_disks=agent.local_disks if agent is not None and "local-disk" in quirks else None,
            managed_by="auto scaling group train-a" if "managed" in quirks else None, volumes=tuple(f"vol-{n}{disk}" for disk in "abc"[: dice.choice((1, 1, 2, 3))]), interfaces=(f"eni-{n}",),
            hibernation=None if google else "hibernates" in quirks, reservation="cr-1" if "reserved" in quirks else None,
        )  # fmt: skip
    )
    fleet.machines.append(Machine(id, track, agent, policy, life_name, quirks, owner, group))


# --- schedules ------------------------------------------------------------------------------------------------------------

WHERE = {
    3: (("Europe/Sofia", "BG"), ("America/New_York", None), ("Asia/Kolkata", None)), 6: (("Asia/Manila", "PH"), ("Europe/Berlin", None), ("UTC", None)),
    10: (("Europe/Dublin", "IE"), ("Europe/Berlin", None), ("Pacific/Auckland", "NZ"), ("Australia/Lord_Howe", None)),
}  # fmt: skip
"""By month of the world's begin: zones, and countries with a holiday in these days. Late in March their clocks change."""

IN_SPRING = (("Europe/Malta", "MT"), ("Europe/Berlin", None), ("Africa/Casablanca", None), ("America/Santiago", None))
WEEKDAYS, WHOLE_WEEK = (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6)


def _under_schedules(fleet: Fleet, dice: random.Random) -> None:
    """In a third of the worlds. Its own dice, thrown last: the other worlds stay as they are."""
    if dice.random() >= (1.0 if "hours" in fleet.focus else 1 / 3):
        return
    settings = replace(fleet.settings, hours={"office": _times(fleet, dice), "late": _times(fleet, dice)})
    if "one-a-minute" in fleet.focus:
        settings = replace(settings, starts_per_minute=1)
    names = [name for name in ("exploration", "training", "evaluation") if dice.random() < 0.9] or ["exploration"]
    for name in names:
        settings = settings.edit(name, hours="office" if dice.random() < 0.8 else "late")
        if dice.random() < 0.5:  # by day machines may stand idle for long
            settings = settings.edit(name, idle_for=dice.choice((2, 4)) * 60 * MINUTE, held_for=dice.choice((5, 8)) * 60 * MINUTE)
        if settings.google and dice.random() < 0.3 and not fleet.focus & {"hibernate", "stop-and-snapshot", "terminate"}:
            settings = settings.edit(name, action="suspend", suspend_else=dice.choice(("stop", "stop", "hold")))
    fleet.settings = settings
    for n, instance in enumerate(fleet.instances):
        tags, what = dict(instance.tags), dice.random()
        what = 1.0 if "order" in fleet.focus and fleet.machines[n].group is not None else what
        if what < (0.5 if "never" in fleet.focus else 0.15):
            tags[TAG if dice.random() < 0.7 else "Reaper-Hours"] = dice.choice(("late", "LATE", " office ", NEVER, "Never"))
            if "never" in fleet.focus:
                tags[TAG] = NEVER
        elif what < (0.5 if "unreadable" in fleet.focus else 0.23):
            tags[TAG] = dice.choice(("offce", "mon-fri 08:00-19:00", "", "office late"))
            if dice.random() < 0.3:
                tags |= {TAG: "office", "REAPER-HOURS": "late"}
        if fleet.machines[n].group is not None and dice.random() < 0.8:
            tags[ORDER_TAG] = str(n % 3) if dice.random() < 0.9 else "first"
        fleet.instances[n] = replace(instance, tags=tags, suspends=dice.random() < 0.6 if instance.id.cloud == "gcp" else None)


def _times(fleet: Fleet, dice: random.Random) -> Times:
    spring = fleet.base.month == 3 and fleet.base.day > 15
    zone, country = dice.choice(IN_SPRING if spring else WHERE[fleet.base.month])
    weekend = fleet.base.weekday() >= 4 or dice.random() < 0.3
    start, end = dice.choice((time(8), time(8), time(7, 30), time(9, 15))), dice.choice((time(19), time(18), time(17, 45), time(21)))
    if "short" in fleet.focus:  # half a day from here: an evening and a morning have to fit in
        start, end = (((fleet.base + timedelta(hours=h)).replace(minute=0)).time() for h in (7, 2))
        zone, weekend = "UTC", True
    on = [Stretch(WHOLE_WEEK if weekend else WEEKDAYS, start, end)]
    shape = dice.random()
    if shape < 0.15:
        on = [Stretch(on[0].days, start, time(12)), Stretch(on[0].days, time(13), end)] if start < time(12) and end > time(13) else on
    elif shape < 0.3:
        on = [Stretch(on[0].days, time(14), time(2, 30))]  # over midnight, and into the hour in which clocks change
    second = (fleet.base + timedelta(days=dice.choice((1, 1, 2)))).date()
    off_days: tuple[date, ...] = (second,) if dice.random() < (0.8 if "holiday" in fleet.focus else 0.25) else ()
    noon = datetime.combine(second, time(12))
    idle_for = dice.choice((5, 10, 15, 30)) * MINUTE
    return Times(
        zone, tuple(on), off_days, country if dice.random() < 0.7 else None,
        also_on=((noon + timedelta(hours=9), noon + timedelta(hours=11)),) if dice.random() < 0.1 else (),
        also_off=((noon, noon + timedelta(hours=5)),) if dice.random() < 0.1 else (),
        only=_only(fleet, dice), wait=dice.choice((5, 10, 20, 30)) * MINUTE,
        idle_for=idle_for, held_for=dice.choice((1, 1, 2)) * idle_for, quiet=dice.random() < 0.15, start_also=dice.random() < 0.2,
        no_agent="warn-and-stop" if dice.random() < (0.7 if "unseen" in fleet.focus else 0.15) else "report",
        if_busy="stop" if dice.random() < 0.06 else "hold",
    )  # fmt: skip


def _only(fleet: Fleet, dice: random.Random) -> str | None:
    drawn = dice.choice(("stop", "start")) if dice.random() < 0.12 else None
    return next((word for word in ("stop", "start") if f"only-{word}" in fleet.focus), drawn)
