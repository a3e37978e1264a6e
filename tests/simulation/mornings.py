"""
The starts that schedules are owed, by truth: which stops of ours they come from, when they are due, and whether they come in time.

A morning counts where nothing stood in its way for as long before hours as its start may take: no fault of the cloud or the
daemon, nobody who touched the machine, no edit. Of those each has to be made in time.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from reaper.model.kinds.instance import AT_REST, Instance, InstanceState
from reaper.model.resource import Place, ResourceId
from tests.simulation import hours
from tests.simulation.fleet import Machine
from tests.simulation.lives import DAY, HOUR, MINUTE
from tests.simulation.settings import Settings

BOOT = 14 * MINUTE
"""More than a boot takes until its agent has spoken, and more than the reaper believes it takes, in all but the worst weather."""

LONGEST, USUAL = 30 * MINUTE, 5 * MINUTE
"""What the reaper takes a boot for at the most, and before it has seen one."""


@dataclass(slots=True)
class Owing:
    """
    One stop that is owed a start. ``sure``: hours did not want it on, and not only just so; ``ready_at``: when they want it back, by
    what they say now, None: never; ``free_since``: since when nothing stands in its way; ``was``: what nobody may touch;
    ``begun_at``: the first call.
    """

    machine: Machine
    stop_at: float
    sure: bool
    also: bool
    was: tuple[object, ...]
    ready_at: float | None = None
    free_since: float | None = None
    begun_at: float | None = None
    judged: bool = False


@dataclass(slots=True)
class Mornings:
    """``owed``, ``made``, ``late``: how many mornings counted, and how many of them were ready in time, or were not."""

    world: Any
    judge: Any
    owed: int = 0
    made: int = 0
    late: int = 0
    waiting: dict[ResourceId, Owing] = field(default_factory=dict)
    started_for: dict[ResourceId, tuple[float, float]] = field(default_factory=dict)  # the begin of hours, and when it was started
    booting: dict[ResourceId, float] = field(default_factory=dict)
    boots: dict[ResourceId, list[float]] = field(default_factory=dict)  # from our call to its agent's first word

    # --- what happens -----------------------------------------------------------------------------------------------------

    def went_down(self, machine: Machine, force: Settings) -> None:
        """By a stop of ours, under this configuration."""
        instance, clock, t = self.world.cloud.machines[machine.id], self.world.clock, self.world.clock.t
        found = hours.under(instance, force)
        if found is None or found[1].only == "stop":
            return
        times = found[1]
        off = [not hours.on(times, clock, moment) for moment in (t - MINUTE, t, t + MINUTE)]
        if not any(off) and not times.start_also:
            return
        self.waiting[machine.id] = Owing(machine, t, all(off) or times.start_also, times.start_also, _untouchable(instance))

    def forget(self, machine: Machine) -> None:
        """Somebody had it in hand, or it is gone."""
        self.waiting.pop(machine.id, None)
        self.booting.pop(machine.id, None)

    def called(self, machine: Machine, cause: str) -> None:
        owing = self.waiting.get(machine.id)
        if owing is not None and cause == "morning-start":
            owing.begun_at = owing.begun_at or self.world.clock.t

    def goes_up(self, machine: Machine, who: str) -> None:
        if who == "people":
            self.forget(machine)
        else:
            self.booting[machine.id] = self.world.clock.t

    def came_up(self, machine: Machine) -> None:
        owing = self.waiting.pop(machine.id, None)
        if owing is None:
            return
        if owing.begun_at is not None:
            begins = self._begins(machine, self.booting.get(machine.id, self.world.clock.t))
            if begins is not None:
                self.started_for[machine.id] = (begins, self.world.clock.t)
        self._look(owing)
        if owing.ready_at is not None and self._counts(owing):
            self._count(owing, machine.track.ready_at - owing.ready_at)

    def restored(self, taken: float) -> None:
        """The store forgot what happened since."""
        self.waiting = {id: owing for id, owing in self.waiting.items() if owing.stop_at <= taken}
        self.started_for = {id: span for id, span in self.started_for.items() if span[1] <= taken}
        for owing in self.waiting.values():
            owing.judged = True

    def account(self) -> None:
        """Once a tick: what stands in the way of whom, and who is overdue."""
        now = self.world.clock.t
        for id, t in list(self.booting.items()):
            newest = self.judge.newest(self.world.machines[id])
            if newest is not None and newest.start > t:
                self.boots.setdefault(id, []).append(newest.end - t)
            if now - t > LONGEST or (newest is not None and newest.start > t):
                del self.booting[id]
        for owing in list(self.waiting.values()):
            self._look(owing)
            if owing.ready_at is None or owing.judged:
                continue
            late = now - owing.ready_at
            if late > self._slack(owing) and self._counts(owing):
                self._count(owing, late)

    def _look(self, owing: Owing) -> None:
        now = self.world.clock.t
        ready_at = self._ready_at(owing)
        if ready_at != owing.ready_at:
            owing.ready_at, owing.free_since = ready_at, None
        if owing.free_since is None:
            owing.free_since = now
        if ready_at is None or self._in_the_way(owing) is not None:
            owing.free_since = None

    def _counts(self, owing: Owing) -> bool:
        ready_at, free = owing.ready_at, owing.free_since
        return not owing.judged and owing.sure and ready_at is not None and free is not None and free <= ready_at - self._lead(owing) and free >= owing.stop_at - 1.0

    def _count(self, owing: Owing, late: float) -> None:
        owing.judged = True
        self.owed += 1
        begun = self._begun_late(owing)
        if late <= self._slack(owing) and begun <= 0.0:
            self.made += 1
            return
        self.late += 1
        machine = owing.machine
        self.judge.accuse("ready_when_hours_begin", f"{machine.life} {machine.id.native} was owed to its hours, nothing stood in the way, and it is {late / MINUTE:.1f} minutes late, begun {begun / MINUTE:.1f} minutes too late")

    # --- when -------------------------------------------------------------------------------------------------------------

    def _begins(self, machine: Machine, t: float) -> float | None:
        found = hours.under(self.world.cloud.machines[machine.id], self.world.settings)
        return hours.boundary(found[1], self.world.clock, t) if found is not None else None

    def _ready_at(self, owing: Owing) -> float | None:
        clock = self.world.clock
        found = hours.under(self.world.cloud.machines[owing.machine.id], self.world.settings)
        if found is None or found[1].only == "stop":
            return None
        times, at = found[1], owing.stop_at
        if hours.on(times, clock, at):
            if not times.start_also:
                return at
            at = hours.until(times, clock, at)
        begins = hours.until(times, clock, at) if at < math.inf else math.inf
        if begins == math.inf or self.world.clock.t >= hours.until(times, clock, begins):
            return None  # not within what is laid out, or those hours are over
        return begins

    def _places(self, owing: Owing) -> int:
        mates = [*self.judge.mates(owing.machine), owing.machine]
        return len({hours.place(self.world.cloud.machines[m.id]) for m in mates if m.id in self.waiting or m is owing.machine})

    def _lead(self, owing: Owing) -> float:
        """How long before hours its start may have to begin."""
        settings = self.world.settings
        return BOOT * self._places(owing) + len(self.waiting) / settings.starts_per_minute * MINUTE + 2 * settings.cycle

    def _slack(self, owing: Owing) -> float:
        """How late is still in time: a first boot may take longer than is believed, and cycles are no clocks."""
        rough = 15 * MINUTE if self.world.fleet.weather != "calm" else 0.0  # a restart or a cycle that broke off in between
        return rough + 2 * float(self.world.settings.cycle) + 2 * MINUTE + (self._places(owing) - 1) * 4 * MINUTE

    def _begun_late(self, owing: Owing) -> float:
        """Seconds by which its call came later than its own boots so far, or the usual one, and a cycle allow. Of one that waits for nobody."""
        if self.world.fleet.weather != "calm" or owing.ready_at is None or owing.begun_at is None or self._places(owing) > 1 or len(self.waiting) >= self.world.settings.starts_per_minute:
            return 0.0
        cycle = self.world.settings.cycle
        known = self.boots.get(owing.machine.id, [])[-5:]
        boot = min(max(known) - cycle, LONGEST) if known else USUAL
        return max(owing.begun_at - (owing.ready_at - boot + cycle + 75.0), 0.0)

    def near(self) -> bool:
        """Whether somebody's morning is so near, or a boot of ours on its way, that every minute tells."""
        now = self.world.clock.t
        return bool(self.booting) or any(
            owing.ready_at is not None and owing.ready_at - self._lead(owing) - 2 * MINUTE <= now <= owing.ready_at + 20 * MINUTE for owing in self.waiting.values()
        )

    def quiet_for(self) -> float:
        """Seconds until it is."""
        now = self.world.clock.t
        ahead = [owing.ready_at - self._lead(owing) - 2 * MINUTE - now for owing in self.waiting.values() if owing.ready_at is not None]
        return min((span for span in ahead if span > 0), default=math.inf)

    # --- what stands in the way -------------------------------------------------------------------------------------------

    def _in_the_way(self, owing: Owing) -> str | None:
        world, judge, now = self.world, self.judge, self.world.clock.t
        instance: Instance = world.cloud.machines[owing.machine.id]
        settings = world.settings
        terms = next((terms for terms in settings.policies.values() if terms.tag == instance.tags.get("phase")), None)
        if world.calm or world.fleet.weather == "storm":
            return "the weather"
        if settings.mode != "enforce" or "start" not in settings.verbs or terms is None or terms.mode != "enforce":
            return "policy"
        if settings.also == terms.tag and instance.tags.get("twice") == "yes":
            return "two policies"
        if judge.brake_since is not None:
            return "the kill switch"
        if instance.tags.get("team") != "ml":
            return "scope"
        claims = [value for key, value in instance.tags.items() if key.casefold() == "reaper"]
        if (settings.claim and claims != ["sim"]) or any(value != "sim" for value in claims):
            return "a claim"
        if instance.state not in (*AT_REST, InstanceState.PENDING, InstanceState.RUNNING):
            return "it is not down yet"
        if _untouchable(instance) != owing.was:
            return "somebody touched it"
        if owing.begun_at is None and any(a.action.value != "start" for a in world.people.attempts(open_only=True, resource=instance.id)):
            return "its stop has steps left"
        place = Place(instance.id.cloud, instance.id.account, instance.id.place)
        if now < world.cloud.failed_until.get(place, 0.0) or now < world.cloud.cut.get(place, (0.0, 0))[0] or now < world.cloud.lag_until or now < world.cloud.sold_out_until:
            return "the cloud"
        if any(not p.alive or p.busy or p.trap is not None or p.clock.off for p in world.processes.values()) or not world.processes:
            return "the daemon"
        if not judge.done or now - judge.done[-1] > 17 * MINUTE:
            return "no cycle comes to its end"
        first = [m for m in judge.mates(owing.machine) if hours.place(world.cloud.machines[m.id]) < hours.place(instance)]
        if any(not self._is_up(m) and (m.id not in self.waiting or self.waiting[m.id].free_since is None) for m in first):
            return "another of its job, which comes first"
        return None

    def _is_up(self, machine: Machine) -> bool:
        return machine.id not in self.booting and self.world.cloud.machines[machine.id].state is InstanceState.RUNNING

    def _is_back(self, machine: Machine) -> bool:
        """False: we started it a while ago, and its agent has not spoken since."""
        t, newest = self.booting.get(machine.id), self.judge.newest(machine)
        return t is None or (newest is not None and newest.start > t)

    # --- whether a start may be made --------------------------------------------------------------------------------------

    def refuses(self, case: Any, instance: Instance) -> str | None:
        """Why a start by the clock must not be made now, were the machine as ``instance`` shows it."""
        clock, now = self.world.clock, case.now
        owing, found = self.waiting.get(instance.id), hours.under(instance, case.settings)
        if found is None:
            return "it is under no schedule that can be read"
        name, times = found
        if times.only == "stop":
            return f"hours {name} start nothing"
        if owing is None:
            return f"hours {name} are owed nothing: they wanted it on when it was stopped, or somebody had it in hand since"
        begins = hours.boundary(times, clock, now)
        started = self.started_for.get(instance.id)
        if started is not None and abs(started[0] - begins) < 1.0:
            return f"it was started for these hours {(now - started[1]) / MINUTE:.0f} minutes ago"
        early, off = begins - now, abs(case.process.clock.off)
        if self.world.fleet.weather != "calm":  # agents that are late make boots look long
            most = LONGEST * self._places(owing) + len(self.waiting) / case.settings.starts_per_minute * MINUTE + 3 * case.settings.cycle
        else:
            most = self._lead(owing) + case.settings.cycle
        if early > most + off + case.slack:
            return f"hours {name} begin in {early / HOUR:.1f} hours" if early < DAY * 30 else f"hours {name} do not begin"
        for mate in self.judge.mates(case.machine):
            its = self.waiting.get(mate.id)
            lower = hours.place(self.world.cloud.machines[mate.id]) < hours.place(instance)
            if lower and mate.agent is not None and not mate.agent.shared and not self._is_back(mate):
                return f"{mate.id.native} of the same job comes first, and its agent is not back"
            if lower and its is not None and its.sure and its.ready_at is not None and its.free_since is not None and now - its.free_since > 3 * case.settings.cycle + 2 * MINUTE:
                return f"{mate.id.native} of the same job comes first, and is not up"
        return None


def _untouchable(instance: Instance) -> tuple[object, ...]:
    tags = tuple(sorted((key, value) for key, value in instance.tags.items() if not key.startswith("idle-reaper:")))
    return (instance.type, instance.volumes, instance.interfaces, tags)
