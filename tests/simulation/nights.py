"""
Evenings, nights and mornings of worlds with schedules: who works late, who sleeps, who restarts at nine and again at eleven,
and what fails just when hours begin or end. Its own dice, so that worlds without schedules stay as they are.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import time

from reaper.model.kinds.instance import AT_REST, InstanceState
from tests.simulation import hours
from tests.simulation.fleet import Machine
from tests.simulation.lives import DAY, HELD, HOUR, IDLE, MINUTE
from tests.simulation.settings import Stretch, Times
from tests.simulation.truth import Doing
from tests.simulation.world import World

LATE_RUN = Doing("late run", gpu=0.8, cores=0.6, cpu=0.1, held=True)


def plan(world: World, again: Callable[[str], None]) -> None:
    """``again``: starts a daemon that was killed, sooner or later."""
    dice = random.Random(f"nights {world.fleet.seed}")
    world.on_our_stop.insert(0, lambda machine: _sleep(world, dice, machine))
    world.on_read.append(lambda machine: _retag_late(world, dice, machine))
    for machine in world.machines.values():
        found = hours.under(world.cloud.machines[machine.id], world.settings)
        for evening in _changes(world, found[1], to=False) if found is not None else ():
            if found is not None:
                _evening(world, dice, machine, found[1], evening)
    focus, weather = world.fleet.focus, world.fleet.weather
    for times in world.settings.hours.values():
        for to in (False, True):
            for moment in _changes(world, times, to=to):
                if dice.random() < (0.7 if "away" in focus else {"calm": 0.0, "hiccups": 0.12, "storm": 0.2}[weather]):
                    _at(world, moment - dice.uniform(0.0, 25 * MINUTE), lambda: _away(world, dice, again))
                if to and dice.random() < (0.7 if "sold-out" in focus else {"calm": 0.0, "hiccups": 0.1, "storm": 0.3}[weather]):
                    _at(world, moment - 30 * MINUTE, lambda moment=moment: _sold_out(world, dice, moment))
    if dice.random() < (1.0 if "edit-hours" in focus else 0.35):
        world.at(dice.uniform(0.05, 0.8) * world.end, lambda: _edit(world, dice))


def _at(world: World, t: float, event: Callable[[], None]) -> None:
    if 0.0 < t < world.end:
        world.at(t, lambda: None if world.calm else event())


def _changes(world: World, times: Times, *, to: bool) -> list[float]:
    """When hours begin (``to`` True) or end within the run."""
    found, t = [], 0.0
    while (t := hours.until(times, world.clock, t)) < world.end:
        if hours.on(times, world.clock, t) is to:
            found.append(t)
    return found


# --- people -------------------------------------------------------------------------------------------------------------


def _evening(world: World, dice: random.Random, machine: Machine, times: Times, evening: float) -> None:
    focus = world.fleet.focus
    together = random.Random(f"home {world.fleet.seed} {machine.group or machine.id.native} {evening:.0f}")  # a job is one
    if together.random() < 0.75:
        home = evening + together.choice((together.uniform(-25 * MINUTE, HOUR), together.uniform(-2 * HOUR, 2 * HOUR)))
        back = hours.until(times, world.clock, evening) + together.uniform(-0.5 * HOUR, 2 * HOUR)
        doing = HELD if together.random() < 0.3 else IDLE
        _at(world, home, lambda: _goes_home(world, machine, back - home, doing))
    if machine.group is not None and together.random() < (0.9 if "order" in focus else 0.4):
        return  # nobody comes between the machines of this job tonight
    if dice.random() < 0.25:
        _at(world, evening - dice.uniform(2 * MINUTE, 40 * MINUTE), lambda: _works_late(world, dice, machine))
    if dice.random() < 0.06:
        _at(world, evening + dice.uniform(-HOUR, 2 * HOUR), lambda: world.people_call("stop", machine))
    if dice.random() < (0.6 if "by-hand" in focus else 0.05):  # in the morning, a while after it may have been started
        morning = hours.until(times, world.clock, evening)
        _at(world, min(morning, world.end) + dice.uniform(-5 * MINUTE, 20 * MINUTE), lambda: world.people_call("stop", machine))
    if dice.random() < (0.7 if "owl" in focus else 0.15):
        first = evening + dice.uniform(0.5, 2.0) * HOUR
        _at(world, first, lambda: _starts(world, machine))
        if dice.random() < 0.5:
            _at(world, first + dice.uniform(8 * MINUTE, HOUR), lambda: world.people_call("stop", machine))
            _at(world, first + dice.uniform(65 * MINUTE, 3 * HOUR), lambda: _starts(world, machine))
    if dice.random() < (0.6 if "touch" in focus else 0.08):
        _at(world, evening + dice.uniform(0.7, 10.0) * HOUR, lambda: _meddle(world, dice, machine))
    if dice.random() < 0.04:
        _at(world, evening + dice.uniform(-40 * MINUTE, 20 * MINUTE), lambda: _retag(world, dice, machine))


def _goes_home(world: World, machine: Machine, span: float, doing: Doing) -> None:
    if world.cloud.machines[machine.id].state is InstanceState.RUNNING and not machine.track.off and 0.0 < span < 4 * DAY:
        machine.track.insert(world.clock.t, [(span, doing)])


def _starts(world: World, machine: Machine) -> None:
    if world.cloud.machines[machine.id].state in AT_REST:
        world.people_call("start", machine)


def _works_late(world: World, dice: random.Random, machine: Machine) -> None:
    if world.cloud.machines[machine.id].state is InstanceState.RUNNING and not machine.track.off and machine.group is None:
        world.say(f"a late run on {machine.life} {machine.id.native}")
        machine.track.insert(world.clock.t, [(dice.uniform(20 * MINUTE, 3 * HOUR), LATE_RUN)])


def _sleep(world: World, dice: random.Random, machine: Machine) -> None:
    """Most people whose machine goes for the night want it back in the morning, and not before."""
    found = hours.under(world.cloud.machines[machine.id], world.settings)
    if found is None or machine.comes_back is None or hours.on(found[1], world.clock, world.clock.t) or dice.random() < 0.2:
        return
    morning = hours.until(found[1], world.clock, world.clock.t)
    if machine.comes_back < morning < world.end:
        machine.comes_back = morning + dice.uniform(10 * MINUTE, 3 * HOUR)


def _meddle(world: World, dice: random.Random, machine: Machine) -> None:
    """Somebody resizes it in the night, or writes a note on it, or had it up for a while."""
    instance = world.cloud.machines[machine.id]
    if instance.state not in AT_REST:
        return
    what = dice.randrange(4)
    world.count("touched in the night")
    world.say(f"somebody touches {machine.life} {machine.id.native} in the night")
    if what == 0:
        world.cloud.change(machine.id, interfaces=(*instance.interfaces, f"eni-{world.clock.t:.0f}"))
    elif what == 1:
        world.cloud.change(machine.id, tags={**instance.tags, "note": f"mine {world.clock.t:.0f}"})
    elif what == 2:
        world.cloud.change(machine.id, volumes=(*instance.volumes, f"vol-n{world.clock.t:.0f}"))
    else:
        world.people_call("start", machine)
        world.after(dice.uniform(6 * MINUTE, 40 * MINUTE), lambda: None if world.calm else world.people_call("stop", machine))
    world.judge.touched(machine)


def _retag(world: World, dice: random.Random, machine: Machine, word: str | None = None) -> None:
    tags = {key: value for key, value in world.cloud.machines[machine.id].tags.items() if key.casefold() != hours.TAG}
    word = word or dice.choice((hours.NEVER, "late", "office", "tomorrow", None))
    world.count("schedule tag changed")
    world.judge.useful.held[machine.id] = world.clock.t  # as anybody's edit: what was counted before counts no more
    world.cloud.change(machine.id, tags=tags if word is None else {**tags, hours.TAG: word})
    world.say(f"{machine.life} {machine.id.native} has the schedule tag {word}")


def _retag_late(world: World, dice: random.Random, machine: Machine) -> None:
    """It is being read afresh, so it is about to go or to come."""
    if not world.calm and dice.random() < (0.6 if "late-hours" in world.fleet.focus else 0.02):
        world.after(0.01, lambda: _retag(world, dice, machine, dice.choice((hours.NEVER, "tomorrow"))))


# --- the operator, the cloud, the daemon -----------------------------------------------------------------------------------


def _edit(world: World, dice: random.Random) -> None:
    settings = world.settings
    if world.calm or not settings.hours:
        return
    name = dice.choice(sorted(settings.hours))
    times, before = settings.hours[name], settings
    what = dice.randrange(5)
    world.count("schedule edited")
    if what == 0:
        policies = {key: replace(terms, hours=None) if terms.hours == name else terms for key, terms in settings.policies.items()}
        world.edit(replace(settings, policies=policies, hours={key: t for key, t in settings.hours.items() if key != name}), f"hours {name} are gone")
        if dice.random() < 0.6:
            world.after(dice.uniform(0.5, 14.0) * HOUR, lambda: _back(world, name, times, tuple(k for k, t in before.policies.items() if t.hours == name)))
        return
    if what == 1:
        times = replace(times, wait=dice.choice((5.0, 15.0)) * MINUTE, idle_for=dice.choice((5.0, 12.0)) * MINUTE, held_for=20 * MINUTE)
    elif what == 2:
        times = replace(times, only=dice.choice(("stop", "start", None)))
    else:  # another end, or another begin: often one that has passed a while ago
        stretch = times.on[0]
        moved = time((stretch.end.hour + dice.choice((-5, -2, 1, 2))) % 24, stretch.end.minute) if what == 3 else stretch.end
        start = time((stretch.start.hour + dice.choice((-2, 1, 3))) % 24, stretch.start.minute) if what == 4 else stretch.start
        if moved != start:
            times = replace(times, on=(Stretch(stretch.days, start, moved),))
    world.edit(replace(settings, hours={**settings.hours, name: times}), f"hours {name} are {', '.join(map(str, times.on))} now, only {times.only}")


def _back(world: World, name: str, times: Times, policies: tuple[str, ...]) -> None:
    settings = replace(world.settings, hours={**world.settings.hours, name: times})
    for policy in policies:
        settings = settings.edit(policy, hours=name)
    world.edit(settings, f"hours {name} are back")


def _away(world: World, dice: random.Random, again: Callable[[str], None]) -> None:
    """The daemon is not there when hours begin or end."""
    span = dice.choice((12 * MINUTE, 40 * MINUTE, 2 * HOUR))
    world.count("daemon away at the change of hours")
    for name in list(world.processes):
        world.kill(name, "away at the change of hours")
        world.after(span, lambda name=name: _return(world, name, again))


def _return(world: World, name: str, again: Callable[[str], None]) -> None:
    process = world.processes.get(name)
    for id in world.machines:  # what would have been counted meanwhile is begun anew, perhaps after quiet hours
        world.judge.useful.held[id] = world.clock.t
    if not world.calm and (process is None or not process.alive) and not world.start(name):
        again(name)


def _sold_out(world: World, dice: random.Random, morning: float) -> None:
    world.cloud.sold_out_until = morning + dice.uniform(5 * MINUTE, 90 * MINUTE)
    world.count("sold out in the morning")
    world.say("nothing can be had in the zones")
