"""
Whether it is of any use: of the hours in which a machine truly idled past its term, its wait and its last look, with nothing
of people or policy in the way, how many was it off?
"""

from dataclasses import dataclass, field
from typing import Any

from reaper.model.kinds.instance import InstanceState
from reaper.model.resource import ResourceId
from reaper.service.fleet import read_jumps
from tests.simulation import hours
from tests.simulation.fleet import Machine
from tests.simulation.lives import DAY, MINUTE
from tests.simulation.settings import Hours, Terms

AT_LEAST = {"calm": 0.95, "hiccups": 0.80}
ENOUGH_HOURS = 12.0
"""Fewer idle hours than this in one world say nothing about a share."""


@dataclass(slots=True)
class Usefulness:
    """``saved`` and ``wasted`` in seconds. ``held``: until when something of people or policy stood in a machine's way."""

    world: Any
    judge: Any
    saved: float = 0.0
    wasted: float = 0.0
    machine_s: float = 0.0
    held: dict[ResourceId, float] = field(default_factory=dict)
    why: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0

    def account(self) -> None:
        now, span = self.world.clock.t, self.world.clock.t - self._last
        self._last = now
        self.machine_s += span * len(self.world.machines)
        if span <= 0 or self.world.fleet.weather == "storm" or self.world.calm:
            return
        blocked = {id for j in read_jumps(self.world.people) if now < self.world.clock.seconds(j.until) for id in j.machines}
        free = {id: "the breaker" if id in blocked else self._in_the_way(machine) for id, machine in self.world.machines.items()}
        for id, why in free.items():
            if why is not None:
                self.held[id] = now
        for machine in self.world.machines.values():
            if machine.id in self.judge.down_by_us and machine.track.off:
                if machine.comes_back is not None and machine.comes_back > now:
                    self.saved += span
                continue
            if self.world.cloud.machines[machine.id].state is not InstanceState.RUNNING or free[machine.id] is not None:
                continue
            mates = self.judge.mates(machine)
            if any(free[m.id] is not None for m in mates) or any(m.track.at(now).work for m in mates):
                self.held[machine.id] = now
                continue
            due = max(self._due(m) for m in (machine, *mates))
            if not machine.track.at(now).work and now > due:
                self.wasted += min(span, now - due)
                self.why[machine.id.native] = self.why.get(machine.id.native, 0.0) + min(span, now - due)

    def nears_its_term(self, machine: Machine, within: float) -> bool:
        """Whether it may be nominated in the next ``within`` seconds, were nothing to change."""
        now = self.world.clock.t
        if self.world.cloud.machines[machine.id].state is not InstanceState.RUNNING:
            return False
        over = 0.0
        if self._near_its_hours(machine, within):
            return True
        for m in (machine, *self.judge.mates(machine)):
            terms = self._terms(m)
            if terms is None or not terms.takes or m.track.at(now).work:  # who works has fifteen minutes at the least
                return False
            worked, held = m.track.worked_until(now), m.track.held_until(now)
            spans = [max(worked, held) + terms.idle_for, worked + terms.held_for]
            if terms.ended_for is not None and worked + terms.ended_for > now:
                spans.append(worked + terms.ended_for)
            over = max(over, min(spans))
        return over < now + within and self._in_the_way(machine) is None

    def _near_its_hours(self, machine: Machine, within: float) -> bool:
        """Whether the clock may nominate it; a job's machines one by one."""
        now = self.world.clock.t
        found = hours.under(self.world.cloud.machines[machine.id], self.world.settings)
        if found is None or found[1].only == "start" or machine.track.at(now).work or self._in_the_way(machine) is not None:
            return False
        times = found[1]
        if hours.on(times, self.world.clock, now + times.wait + within):
            return False
        return machine.track.worked_until(now) + times.idle_for < now + within

    def _terms(self, machine: Machine) -> Terms | None:
        phase = self.world.cloud.machines[machine.id].tags.get("phase")
        return next((terms for terms in self.world.settings.policies.values() if terms.tag == phase), None)

    def _in_the_way(self, machine: Machine) -> str | None:
        """What of people or policy holds it, by truth."""
        world, judge, now = self.world, self.judge, self.world.clock.t
        settings, instance = world.settings, self.world.cloud.machines[machine.id]
        terms = self._terms(machine)
        if terms is None or terms.mode != "enforce" or not terms.takes or settings.mode != "enforce" or settings.broken is not None:
            return "policy"
        if judge.brake_since is not None:
            return "the kill switch"
        if machine.quirks & {"no-agent", "shared-token", "spot", "managed", "scarce", "orchestrator", "local-disk", "two-policies", "launch-unknown", "end-protected", "hidden-owner", "capacity-block", "reserved", "bad-key"}:
            return "what it is"
        if machine.agent is None or (machine.agent.hook not in (None, "ok")):
            return "its hook"
        if terms.action == "hibernate" and terms.hibernate_else == "hold" and instance.hibernation is not True:
            return "it cannot hibernate"
        if terms.action == "suspend" and terms.suspend_else == "hold" and instance.suspends is not True:
            return "it cannot be suspended"
        if terms.action == "terminate" and machine.id in world.cloud.end_protected:
            return "termination protection"
        if instance.tags.get("team") != "ml" or world.cloud.stop_protected.get(machine.id, False) is not False:
            return "scope or stop protection"
        claims = [v for k, v in instance.tags.items() if k.casefold() == "reaper"]
        if (settings.claim and claims != ["sim"]) or any(v != "sim" for v in claims):
            return "a claim"
        if any(since < now < until for since, until in machine.snoozed):
            return "a snooze"
        if judge.shields.protecting(machine, now, settings) is not None or self._protected_lately(machine, now):
            return "a protection"
        if self._no_budget(machine):
            return "the budget"
        if all(now < world.channels_down.get(name, 0.0) for name in terms.via):
            return "no channel"
        return None

    def _protected_lately(self, machine: Machine, now: float) -> bool:
        """A little more than a day after it vanished: the cycle that noticed may have been a while later."""
        tags = self.judge.shields.tags(machine)
        shields = (last for (id, _), (_, last) in self.judge.shields.seen.items() if id == machine.id)
        return any(b is None or now < b + DAY + 20 * MINUTE for _, _, b in tags[-1:]) or any(now < last + DAY + 20 * MINUTE for last in shields)

    def _no_budget(self, machine: Machine) -> bool:
        """The plan says so, and by our own books it is true: one more would be one too many."""
        withheld = any(
            w.resource == machine.id and w.by == "budget" for p in self.world.processes.values() if p.result is not None for w in p.result.plan.withheld
        )  # fmt: skip
        settings, now = self.world.settings, self.world.clock.t
        tight = settings.per_hour is not None and settings.per_hour <= 3
        lately = any(now - stop.at < 3700.0 for stop in self.judge.stops[-40:])
        return withheld and (lately or settings.usd_per_hour is not None or tight or settings.per_day is not None)

    def _due(self, machine: Machine) -> float:
        """When it should be off at the latest, were nothing to change."""
        world, now, track = self.world, self.world.clock.t, machine.track
        terms = self._terms(machine)
        assert terms is not None
        worked, held = track.worked_until(now), track.held_until(now)
        term_over = min(max(worked, held) + terms.idle_for, worked + terms.held_for)
        up = self.judge.up_since.get(machine.id, 0.0) + terms.min_age
        anew = max((t for t, of, _ in self.judge.anew if (of in (None, terms.tag) or of.startswith("hours ")) and world.fleet.weather == "calm"), default=0.0)
        last_wait = self.judge.beats[0][0] if self.judge.beats else now
        begin = max(term_over, up, anew, self.held.get(machine.id, -1e9), last_wait) + 9 * MINUTE  # a dull tick passes before it is noticed
        # A look that comes a minute after quiet hours have begun comes in the morning.
        return self._after_wait(begin, terms.wait + 4 * world.settings.cycle + 4 * MINUTE, terms.quiet)

    def _after_wait(self, begin: float, wait: float, quiet: Hours | None) -> float:
        if quiet is None:
            return begin + wait
        t, left = begin, wait
        while left > 0 and t < begin + 2 * DAY:
            if not quiet.contain(self.world.clock.at(t)):
                left -= 5 * MINUTE
            t += 5 * MINUTE
        return t

    @property
    def share(self) -> float | None:
        """None: there was nothing to recover."""
        whole = self.saved + self.wasted
        return self.saved / whole if whole > 0 else None

    def at_the_end(self) -> None:
        least = AT_LEAST.get(self.world.fleet.weather)
        if least is None or self.share is None or self.saved + self.wasted < ENOUGH_HOURS * 3600:
            return
        if self.share < least:
            worst = sorted(self.why.items(), key=lambda item: -item[1])[:3]
            names = ", ".join(f"{native} {wasted / 3600:.1f} h" for native, wasted in worst)
            self.judge.accuse("useful", f"{self.share:.1%} of {(self.saved + self.wasted) / 3600:.0f} idle hours recovered, less than {least:.0%}: {names}")
