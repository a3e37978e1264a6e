"""The judge: keeps the books that the rules look into, and asks them at every verb, every cycle, and at the end."""

import math
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from reaper.model.audit import AuditKind
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.resource import ResourceId
from tests.simulation import hours, rules
from tests.simulation.fleet import Heard, Machine
from tests.simulation.lives import DAY, HOUR, MINUTE
from tests.simulation.mornings import Mornings
from tests.simulation.process import Process
from tests.simulation.rules import Case
from tests.simulation.settings import Hours, Settings
from tests.simulation.useful import Usefulness

MOST_VIOLATIONS = 5


class Enough(BaseException):
    """One violation is all that was asked for."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    text: str
    at: str


@dataclass(slots=True)
class Stop:
    """One stop of ours that took effect."""

    at: float
    machine: Machine
    cause: str
    usd: float


class Judge:
    def __init__(self, world: Any) -> None:
        self.world = world
        self.violations: list[Violation] = []
        self.late_work = 0
        self.late_spans: list[float] = []
        self.blinks = 0
        self.by_its_words = 0  # stops by a schedule that says so, of busy machines or of those without an agent
        self.actions = 0
        self.leases: list[tuple[float, str, Any]] = []
        self.called: set[str] = set()
        self.beats: list[tuple[float, Settings]] = []  # every cycle that a leader began
        self.done: list[float] = []  # and when one came to its end
        self.anew: list[tuple[float, str | None, str]] = []
        self.brake_since: float | None = None
        self.up_since: dict[ResourceId, float] = {}
        self.end_protection_since: dict[ResourceId, float] = {}
        self.stop_protection_since: dict[ResourceId, float] = {}
        self.launched_at: dict[ResourceId, float] = {}
        self.down_by_us: set[ResourceId] = set()
        self.touched_since: set[ResourceId] = set()
        self.stops: list[Stop] = []
        self.shields = Shields(world, self)
        self.spending = Spending(world, self)
        self.useful = Usefulness(world, self)
        self.mornings = Mornings(world, self)
        self._last_cycle: str | None = None

    # --- what the world tells --------------------------------------------------------------------------------------------

    def accuse(self, rule: str, text: str) -> None:
        self.world.say(f"*** {rule}: {text}")
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(rule, text, self.world.told[-1][:14]))
        if self.world.one_is_enough:
            raise Enough

    def verb(self, verb: str, machine: Machine, process: Process) -> None:
        case = self._case(verb, machine, process)
        for rule in rules.RULES[verb]:
            wrong = rule(case)
            if wrong is not None:
                self.accuse(rule.__name__, f"{verb} of {machine.life} {machine.id.native} ({case.cause or 'no cause'}): {wrong}")
        if verb == "start":
            self.mornings.called(machine, case.cause)
        if case.attempt is not None and verb not in rules.LATER:
            self.called.add(case.attempt.id)
        self.actions += 1
        if verb in ("stop", "hibernate"):
            self._expect_the_gang(machine, case)

    def cycle_begins(self, process: Process) -> None:
        """Who leads is told by the leases; what a standby sees moves nothing."""
        assert process.force is not None
        lease = process.leader._store.held_lease() if not self.leases else self.leases[-1][2]
        if self.leases and self.leases[-1][1] != process.name and lease is not None and process.clock.now() < lease.expires_at:
            return
        t, force = self.world.clock.t, process.force
        if self.beats:
            self._compare(self.beats[-1][1], force)
        if self.done and t - self.done[-1] > 10 * MINUTE + 30.0:
            self.anew.append((t, None, f"{(t - self.done[-1]) / MINUTE:.0f} minutes without a cycle"))
        self.beats.append((t, force))
        self.shields.see(t, force)

    def _compare(self, was: Settings, now: Settings) -> None:
        t = self.world.clock.t
        if was.mode != now.mode:
            self.anew.append((t, None, "a change of mode"))
        for name, terms in now.policies.items():
            if was.policies.get(name) != terms:
                self.anew.append((t, name, f"a change of policy {name}"))
        for name in was.hours.keys() | now.hours.keys():
            if was.hours.get(name) != now.hours.get(name):
                self.anew.append((t, f"hours {name}", f"a change of hours {name}"))

    def cycle_ends(self, process: Process) -> None:
        """A cycle came to its end if it wrote that down; what breaks off after that changes nothing."""
        kept = self.world.people.fact("last_cycle_at")
        if kept != self._last_cycle:
            self._last_cycle = kept
            self.done.append(self.world.clock.t)

    def went_down(self, machine: Machine, who: str) -> None:
        self.down_by_us.discard(machine.id)
        self.touched_since.discard(machine.id)
        self.mornings.forget(machine)
        if who == "people":
            return
        self.mornings.went_down(machine, self.world.processes[who].force or self.world.settings)
        self.down_by_us.add(machine.id)
        instance = self.world.cloud.machines[machine.id]
        self.stops.append(Stop(self.world.clock.t, machine, "", self.spending.price(instance)))

    def goes_up(self, machine: Machine, who: str) -> None:
        self.launched_at[machine.id] = self.world.clock.t
        self.mornings.goes_up(machine, who)
        if who != "people":
            self.spending.starts.append(self.world.clock.t)

    def came_up(self, machine: Machine) -> None:
        self.up_since[machine.id] = self.world.clock.t
        self.mornings.came_up(machine)
        self.down_by_us.discard(machine.id)

    def touched(self, machine: Machine) -> None:
        self.touched_since.add(machine.id)
        self.mornings.forget(machine)

    def stop_protection_changed(self, machine: Machine) -> None:
        self.stop_protection_since[machine.id] = self.world.clock.t

    def end_protection_changed(self, machine: Machine) -> None:
        self.end_protection_since[machine.id] = self.world.clock.t

    def ended(self, machine: Machine) -> None:
        """It is gone for good; what it saved until its people came back was judged when it went down."""
        self.world.say(f"{machine.life} {machine.id.native} is ended")
        self.mornings.forget(machine)

    def brake(self, on: bool) -> None:
        self.brake_since = self.world.clock.t if on else None

    def wedged_now(self) -> bool:
        return any(m.agent is not None and "wedged" in m.agent.ails for m in self.world.machines.values())

    def restored(self, taken: float) -> None:
        """The store is as it was at ``taken``: what was said and spent since is forgotten, and people are warned anew."""
        now = self.world.clock.t
        self.anew.append((now, None, "a restored store"))
        self.leases.clear()
        for machine in self.world.machines.values():
            machine.snoozed = [span for span in machine.snoozed if span[0] <= taken]
        self.shields.restored(taken)
        self.spending.forget_since = taken
        self.stops = [stop for stop in self.stops if stop.at <= taken]
        self.down_by_us &= {stop.machine.id for stop in self.stops}
        self.mornings.restored(taken)
        self.world.restored_at.append(now)

    def late(self, machine: Machine, span: float) -> None:
        self.late_work += 1
        self.late_spans.append(span)
        self.world.say(f"late work: {machine.life} {machine.id.native} began {span:.0f} s before its stop")

    def account(self) -> None:
        self.useful.account()
        self.mornings.account()

    # --- what the rules ask ----------------------------------------------------------------------------------------------

    def _case(self, verb: str, machine: Machine, process: Process) -> Case:
        world, now = self.world, self.world.clock.t
        force = process.force or world.settings
        instance: Instance = world.cloud.machines[machine.id]
        phase = instance.tags.get("phase")
        terms = next((terms for terms in force.policies.values() if terms.tag == phase), None)
        opened = [a for a in world.people.attempts(open_only=True, resource=machine.id) if a.action.value in rules.ACTIONS[verb]]
        warned = machine.warned[-1] if machine.warned else (None, None)
        lag = world.cloud.weather.get_lag
        slack = world.wire[1] + 1.0 + (65.0 if world.faults["daemon's clock steps"] else 0.0)
        return Case(
            self, world, verb, machine, process, force, terms, instance, world.cloud.as_it_was(machine.id, now - rules.READ_TO_CALL - 1.0 - lag),
            opened[0] if opened else None, len(world.people.attempts(open_only=True, resource=machine.id)), now, self.newest(machine), warned[0], warned[1], slack,
            next((found[1] for i in (instance, world.cloud.as_it_was(machine.id, now - rules.READ_TO_CALL - 1.0 - lag)) if (found := hours.under(i, force)) is not None), None),
        )  # fmt: skip

    def newest(self, machine: Machine) -> Heard | None:
        """The newest believable window that reached a door."""
        recent = [heard for heard in machine.heard[-200:] if heard.believable]
        return max(recent, key=lambda heard: heard.end, default=None)

    def uncovered(self, machine: Machine, look: Heard, term: float) -> str | None:
        begin = look.end - term
        spans = sorted((max(h.start, begin), h.end, h.ails) for h in machine.heard if h.believable and h.end > begin and h.start < look.end)
        reached, missing, hole, half, host = begin, 0.0, 0.0, 0.0, 0.0
        for a, b, ails in spans:
            gap = max(a - reached, 0.0)
            missing, hole = missing + gap, max(hole, gap)
            part = max(b - max(a, reached), 0.0)
            half += part * (1.0 if ails & rules.BLINDING.keys() else 0.5 if "half-covered" in ails else 0.0)
            host += part if ails & rules.HALF_BLIND.keys() else 0.0
            reached = max(reached, b)
        if hole > 3 * 60.0 + 45.0 and machine.agent is not None and machine.agent.stood_still == 0.0:
            return f"a hole of {hole:.0f} s in its reports lies within the term"
        for what, lost in (("its GPUs", missing + half), ("its host", missing + host)):
            if lost > 0.1 * term + 2 * 60.0 + 45.0:
                return f"{lost:.0f} s of its term of {term:.0f} s tell nothing of {what}"
        return None

    def blink(self, machine: Machine, a: float, b: float) -> bool:
        """Whether this work fell into a short hole between two reports, too little of it for the counters to show."""
        covered = [(h.start, h.end) for h in machine.heard if h.believable and h.end > a - 300 and h.start < b + 300]
        if any(min(b, y) - max(a, x) > 0.0 for x, y in covered):
            return False
        left = max((y for _, y in covered if y <= a), default=a - 1)
        right = min((x for x, _ in covered if x >= b), default=b + 1)
        if right - left > 185.0 or (b - a) > 0.35 * (right - left):
            return False
        self.blinks += 1
        return True

    def mates(self, machine: Machine) -> list[Machine]:
        keys = _gang_keys(self.world.cloud.machines[machine.id])
        return [m for m in self.world.machines.values() if m is not machine and keys & _gang_keys(self.world.cloud.machines[m.id])] if keys else []

    def stopped_just_now(self, machine: Machine) -> bool:
        return any(stop.machine is machine and self.world.clock.t - stop.at < 10 * MINUTE for stop in self.stops[-20:])

    def anew_since(self, machine: Machine, policy: str, warned_at: float, schedules: tuple[str, ...] = ()) -> str | None:
        for t, of, what in self.anew:
            if t > warned_at and of in (None, policy, *schedules):
                return what
        for since, until in machine.snoozed:
            if until > warned_at and since < self.world.clock.t and self._a_cycle_in(max(since, warned_at), until):
                return "a snooze"
        if self.shields.protected_in(machine, warned_at, self.world.clock.t):
            return "a protection"
        return None

    def _a_cycle_in(self, a: float, b: float) -> bool:
        """Whether a whole cycle saw what held from ``a`` to ``b``."""
        return any(a < t < b - 45.0 for t, _ in self.beats[-400:])

    def served(self, machine: Machine, begin: float, end: float, quiet: Hours | None, cycle: float) -> float:
        """Seconds of the wait: observed by cycles, outside quiet hours, and with a machine that can be seen."""
        moments = [begin, *(t for t, _ in self.beats if begin < t < end), end]
        total = 0.0
        for a, b in zip(moments, moments[1:], strict=False):
            total += min(_outside(self.world.clock, a, b, quiet), 2 * cycle + 45.0)
        return total

    def _expect_the_gang(self, machine: Machine, case: Case) -> None:
        """Three minutes on, nobody of the job may be left up, unless something came between."""
        mates = [m for m in self.mates(machine) if self.world.cloud.machines[m.id].state.counts]
        if not mates or self.world.fleet.weather == "storm":
            return
        before = (sum(self.world.faults.values()), len(self.violations))
        process = case.process

        def look() -> None:
            left = [m for m in mates if self.world.cloud.machines[m.id].state is InstanceState.RUNNING and not m.track.at(self.world.clock.t).work]
            if left and before == (sum(self.world.faults.values()), len(self.violations)) and process.alive and machine.track.off:
                self.accuse("gang_whole", f"{machine.id.native} was stopped and {left[0].id.native} of the same job was left up")

        self.world.after(3 * MINUTE, look)

    # --- the end ---------------------------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        store = self.world.people
        for attempt in store.attempts(open_only=True):
            if attempt.action.value in rules.LATER_VERBS and self.world.clock.now() - attempt.intent_at < timedelta(hours=24):
                continue  # its later steps wait for who may carry them on
            self.accuse("every_intent_has_an_outcome", f"{attempt.action} {attempt.id} of {attempt.resource.native} is still open")
        entries = self.world.store.audit(limit=1_000_000)
        seqs = [entry.seq for entry in entries]
        if seqs != list(range(1, len(seqs) + 1)):
            self.accuse("audit_whole", "the record has gaps")
        intents = [e.attempt for e in entries if e.kind is AuditKind.INTENT]
        outcomes = {e.attempt for e in entries if e.kind is AuditKind.OUTCOME}
        known = {a.id for a in store.attempts(limit=1_000_000)}
        first = {a.id for a in store.attempts(limit=1_000_000) if a.action.value not in rules.LATER_VERBS}
        if set(intents) != known or any(intents.count(id) != 1 for id in first):
            self.accuse("audit_whole", f"{len(known)} attempts and {len(intents)} intents in the record")
        missing = known - outcomes - {a.id for a in store.attempts(open_only=True)}
        if missing:
            self.accuse("audit_whole", f"{sorted(missing)[0]} has no outcome in the record")
        for attempt in self.called - known if not self.world.restored_at else ():
            self.accuse("audit_whole", f"the attempt {attempt} is gone")
        self._warnings_recorded(entries)
        self.useful.at_the_end()

    def _warnings_recorded(self, entries: Any) -> None:
        if self.world.restored_at or self.world.fleet.weather == "storm":
            return
        recorded = sum(1 for e in entries if e.kind is AuditKind.WARNED and e.evidence.get("via") not in (None, "", "audit"))
        sent = len({(m.id, round(t, 0)) for m in self.world.machines.values() for t, _ in m.warned})
        if self.world.fleet.weather == "calm" and recorded < min(sent, 1):
            self.accuse("audit_whole", f"{sent} warnings were sent and {recorded} are in the record")


def _gang_keys(instance: Instance) -> set[str]:
    keys = {f"job {instance.id.account} {value.strip().casefold()}" for key, value in instance.tags.items() if key.casefold() == "job-group"}
    return keys | ({f"placement {instance.placement_group}"} if instance.placement_group else set())


def _outside(clock: Any, a: float, b: float, quiet: Hours | None) -> float:
    if quiet is None:
        return b - a
    steps = max(int((b - a) / 30.0), 1)
    step = (b - a) / steps
    return sum(step for n in range(steps) if not quiet.contain(clock.at(a + (n + 0.5) * step)))


@dataclass(slots=True)
class Shields:
    """What protects, and what protected until a day ago. ``seen``: (machine, name) to the first and the last cycle that saw it."""

    world: Any
    judge: Judge
    seen: dict[tuple[ResourceId, str], list[float]] = field(default_factory=dict)
    spans: list[tuple[ResourceId, float, float]] = field(default_factory=list)

    def see(self, t: float, force: Settings) -> None:
        for name, (ids, _) in force.protect.items():
            for native in ids:
                machine = next((m for m in self.world.machines.values() if str(m.id) == native), None)
                if machine is not None:
                    self.seen.setdefault((machine.id, name), [t, t])[1] = t

    def protecting(self, machine: Machine, now: float, settings: Settings) -> str | None:
        for name, (ids, _) in settings.protect.items():
            if str(machine.id) in ids:
                return f"it is protected by {name}"
        for (id, name), (_, last) in self.seen.items():
            if id == machine.id and now - last < rules.GRACE - MINUTE and self._done_after(last):
                return f"its protection {name} vanished {(now - last) / HOUR:.1f} hours ago"
        cap = max((t.snooze_up_to for t in settings.policies.values() if t.tag == self.world.cloud.machines[machine.id].tags.get("phase")), default=5 * DAY)
        lag = rules.READ_TO_CALL + 2.0 + self.world.cloud.weather.get_lag
        for value, a, b in self.tags(machine):
            until = rules.until_of(value)
            end = math.inf if until is None else min(self.world.clock.seconds(until.astimezone(UTC)), a + cap)
            if b is None and now - a > lag and now < end - 1.0:
                return f"it is kept by its tag {value}"
            if b is not None and end > b + 600.0 and now < b + rules.GRACE - 600.0 and now - b > 1.0 and self._was_seen(a, b):
                return f"its tag {value} vanished {(now - b) / HOUR:.1f} hours ago"
        return None

    def _done_after(self, t: float) -> bool:
        return any(abs(x - t) < 120.0 for x in self.judge.done[-2000:])

    def _was_seen(self, a: float, b: float) -> bool:
        """By two whole cycles, with listings that may lag behind, and not forgotten since."""
        lagging = 16 * MINUTE if self.world.faults["listings lag behind"] or self.world.faults["region fails"] else 10.0
        if any(a < t for t in self.world.restored_at):
            return False
        return sum(1 for t in self.judge.done if a + lagging < t < b) >= 2

    def tags(self, machine: Machine) -> list[tuple[str, float, float | None]]:
        """The values of its keep-until tag, and from when until when each stood there."""
        found: list[tuple[str, float, float | None]] = []
        for t, instance in self.world.cloud.past[machine.id]:
            value = instance.tags.get("reaper-keep-until")
            if found and found[-1][2] is None and found[-1][0] != value:
                found[-1] = (found[-1][0], found[-1][1], t)
            if value is not None and (not found or found[-1][2] is not None):
                found.append((value, t, None))
        return found

    def protected_in(self, machine: Machine, a: float, b: float) -> bool:
        """Whether a cycle between ``a`` and ``b`` saw it protected by the operator's list."""
        return any(id == machine.id and first < b and last > a + 1.0 for (id, _), (first, last) in self.seen.items())

    def restored(self, taken: float) -> None:
        self.seen = {key: span for key, span in self.seen.items() if span[0] <= taken}


@dataclass(slots=True)
class Spending:
    """How much went within an hour, a day, a minute, a cycle; gangs count whole."""

    world: Any
    judge: Judge
    forget_since: float | None = None
    starts: list[float] = field(default_factory=list)

    def price(self, instance: Instance) -> float:
        prices = self.world.settings.prices
        if instance.type in prices:
            return float(prices[instance.type])
        family = instance.type.partition(".")[0]
        return max((price for name, price in prices.items() if name.partition(".")[0] == family), default=0.0)

    def refuses(self, case: Case) -> str | None:
        if case.attempt is not None and case.attempt.action.value == "start":
            lately = sum(1 for t in self.starts if case.now - t < 50.0)
            return f"{lately + 1} starts within a minute" if lately + 1 > case.settings.starts_per_minute else None
        gang = {m.id for m in self.judge.mates(case.machine)}
        wave = [s for s in self.judge.stops if s.machine.id in gang and case.now - s.at < 10 * MINUTE]
        others = [s for s in self.judge.stops if s not in wave]
        size, settings = len(wave) + 1, case.settings
        edge = 3600.0 - 5.0 - (60.0 if case.slack > 60.0 else 0.0)
        hour = [s for s in others if case.now - s.at < edge]
        midnight = case.world.clock.seconds(case.world.clock.now().replace(hour=0, minute=0, second=0, microsecond=0))
        counts = [("an hour", settings.per_hour, len(hour)), ("a day", settings.per_day, sum(1 for s in others if s.at > midnight + 40.0))]
        counts.append(("a cycle", settings.per_cycle, sum(1 for s in others if s.at > case.process.began)))
        if settings.share_per_hour is not None and not case.world.faults["listings lag behind"]:
            running = sum(1 for i in case.world.cloud.machines.values() if i.state is InstanceState.RUNNING and i.tags.get("team") == "ml")
            recently = sum(1 for s in self.judge.stops if s.at > case.process.began - 5.0) + sum(1 for t in self.judge.up_since.values() if case.now - t < 300.0)
            counts.append(("an hour by share", max(math.floor(settings.share_per_hour * (running + recently)), 1), len(hour)))
        for name, most, used in counts:
            if most is not None and used + size > most and not (size > 1 and used == 0 and most > 0):
                return f"{used + size} stops within {name}, and the limit is {most}"
        dollars = sum(s.usd for s in (*hour, *wave)) + self.price(case.instance)
        if settings.usd_per_hour is not None and dollars > settings.usd_per_hour + 0.01:
            return f"${dollars:.2f} an hour taken down within an hour, and the limit is ${settings.usd_per_hour:.2f}"
        return None


