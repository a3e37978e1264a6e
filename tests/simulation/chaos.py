"""
What befalls a world: everyday life in calm weather, small mishaps with hiccups, and everything at once in a storm.

Each function below plans one kind of misfortune for the whole run; a table says in which weather and how often.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import AT_REST, InstanceState
from reaper.model.plan import Approval, Outcome
from reaper.model.resource import Place
from reaper.ports import Message
from reaper.service import snooze as snoozes
from reaper.service.fleet import write_jumps
from reaper.store import open_store
from tests.simulation import nights
from tests.simulation.agents import AILMENTS, WEDGED, Agent
from tests.simulation.cloud import CloudWeather
from tests.simulation.fleet import Machine
from tests.simulation.lives import DAY, HOUR, MINUTE, Pressure, forgotten
from tests.simulation.seats import Trap
from tests.simulation.settings import ACCOUNTS, PROJECT, REGIONS, ZONES
from tests.simulation.truth import Track
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Misfortune:
    """How often a day, per machine or per world, in calm, with hiccups, in a storm. ``plan`` does it once, now."""

    name: str
    often: tuple[float, float, float]
    happen: Callable[[World, random.Random], None]
    per_machine: bool = False


BLIND_LATE = ("no-wait", "no-cpu", "no-disk", "nvml-failed", "gpu-lost", "misfit", "no-orchestrator-look")


def plan(world: World) -> None:
    """Puts everything that will happen on the world's heap. ``focus`` makes what it names five times as likely."""
    dice = random.Random(f"chaos {world.fleet.seed}")
    weather = ("calm", "hiccups", "storm").index(world.fleet.weather)
    if weather == 1:
        world.late_share = 0.01
    if weather == 2:
        world.late_share = dice.choice((0.0, 0.01, 0.05))
        world.wire = (0.0, dice.choice((1.0, 8.0)))
        world.message_takes = (0.0, dice.choice((0.3, 9.0)))
        world.cloud.weather = CloudWeather(
            latency=(0.05, dice.choice((0.5, 2.0))), slow=dice.choice((0.0, 0.02)), throttled=dice.choice((0.0, 0.01, 0.05)), lost=dice.choice((0.0, 0.1)),
            refused=dice.choice((0.0, 0.1)), empty=dice.choice((0.0, 0.01)), partial=dice.choice((0.0, 0.01, 0.03)), ignored=dice.choice((0.0, 0.05)), get_lag=dice.choice((0.0, 2.0)),
            stock_out=dice.choice((0.0, 0.3)), bounces=dice.choice((0.0, 0.2)), snapshots_fail=dice.choice((0.0, 0.2)),
        )  # fmt: skip
    if "ignored" in world.fleet.focus:
        world.cloud.weather = replace(world.cloud.weather, ignored=0.3, refused=0.4)
    if "partial" in world.fleet.focus:
        world.cloud.weather = replace(world.cloud.weather, partial=0.1)
    if "lost" in world.fleet.focus:
        world.cloud.weather = replace(world.cloud.weather, lost=0.5)
    if "region-at-first" in world.fleet.focus or (weather == 2 and dice.random() < 0.05):
        world.cloud.failed_until[Place("aws", ACCOUNTS[0], REGIONS[1])] = dice.uniform(2, 30) * HOUR
        world.count("region fails")
    for event in EVENTS:
        often = event.often[weather] * (len(world.machines) if event.per_machine else 1)
        if event.name in world.fleet.focus:
            often = max(often * 5, 6.0 if not event.per_machine else 1.0 * len(world.machines))
        t = 0.0
        while often > 0:
            t += dice.expovariate(often / DAY)
            if t >= world.end:
                break
            world.at(t, lambda event=event: None if world.calm else event.happen(world, dice))
    _at_first(world, dice)
    world.on_warning.append(lambda machine, message: _answer(world, dice, machine, message))
    world.on_read.append(lambda machine: _at_the_last_moment(world, dice, machine))
    world.on_our_stop.append(lambda machine: _come_back(world, dice, machine))
    if world.settings.hours:
        nights.plan(world, lambda name: _and_again(world, dice, name))


def _at_first(world: World, dice: random.Random) -> None:
    world.start("a")
    if world.fleet.weather == "storm" and (dice.random() < 0.4 or "two-daemons" in world.fleet.focus):
        world.start("b")
    if world.settings.mode == "observe":
        world.at(dice.uniform(0.1, 1.0) * DAY, lambda: world.edit(replace(world.settings, mode="enforce"), "enforce from now on"))
    for machine in world.machines.values():
        if "protected" in machine.quirks:
            world.settings = replace(world.settings, protect={**world.settings.protect, f"p{machine.id.native}": ((str(machine.id),), None)})
        if "keep-until" in machine.quirks:
            _keep_until(world, dice, machine)


# --- people -------------------------------------------------------------------------------------------------------------


def _any(world: World, dice: random.Random) -> Machine:
    return dice.choice(list(world.machines.values()))


def _answer(world: World, dice: random.Random, machine: Machine, message: Message) -> None:
    """Some who are warned say "not now": the owner, or somebody who is not."""
    if dice.random() < (0.6 if "snooze" in world.fleet.focus else 0.12):
        world.after(dice.uniform(20.0, 8 * MINUTE), lambda: _snooze(world, dice, machine))
    terms = world.settings.policies.get(message.policy or "")
    if terms is not None and dice.random() < (0.7 if "blind-late" in world.fleet.focus else 0.04 if world.fleet.weather == "storm" else 0.0):
        world.after(max(terms.wait - dice.uniform(0.0, 2.0) * world.settings.cycle, 30.0), lambda: _go_blind(world, dice, machine))
    if terms is not None and dice.random() < (0.7 if "late-tag" in world.fleet.focus else 0.03):
        world.after(max(terms.wait + dice.uniform(-1.0, 2.0) * world.settings.cycle, 30.0), lambda: None if world.calm else _tag_it(world, machine))


def _go_blind(world: World, dice: random.Random, machine: Machine) -> None:
    """Something becomes unreadable just as a machine is about to go."""
    agent = machine.agent
    if agent is None or world.calm:
        return
    word = dice.choice([word for word in BLIND_LATE if word in world.fleet.focus] or BLIND_LATE)
    agent.ails.add(word)
    world.count(f"agent {word}")
    world.say(f"the agent of {machine.life} {machine.id.native} is {word}")
    world.after(dice.uniform(5.0, 8.0) * world.settings.cycle, lambda: agent.ails.discard(word))


def _tag_it(world: World, machine: Machine) -> None:
    """Its owner keeps it by the tag, which a listing that lags behind does not show yet."""
    end = world.clock.now() + timedelta(hours=2)
    world.count("protection set")
    world.cloud.change(machine.id, tags={**world.cloud.machines[machine.id].tags, "reaper-keep-until": str(int(end.timestamp()))})
    world.say(f"{machine.life} {machine.id.native} is kept by a tag for two hours")


def _at_the_last_moment(world: World, dice: random.Random, machine: Machine) -> None:
    """A machine is being read afresh, so it is about to go: now is when people think of it, and when a standby takes over."""
    storm, focus = world.fleet.weather == "storm", world.fleet.focus
    if world.calm:
        return
    if world.cloud.machines[machine.id].state is InstanceState.STOPPED and dice.random() < (0.3 if "late-touch" in focus else 0.05):
        meddle = dice.choice((_touch, _snooze, _spare))
        world.after(dice.choice((0.02, 1.0, 60.0)), lambda: None if world.calm else meddle(world, dice, machine))
    if dice.random() < (0.5 if "late-snooze" in focus else 0.03 if storm else 0.0):
        world.after(0.02, lambda: _snooze(world, dice, machine))
    if dice.random() < (0.5 if "clock-late" in focus else 0.02 if storm else 0.0) and world.caller is not None:
        process = world.caller
        process.clock.off = dice.choice((-45.0, 45.0))
        world.count("daemon's clock steps")
        world.after(3 * MINUTE, lambda: setattr(process.clock, "off", 0.0))
    if dice.random() < (0.5 if "usurped" in focus else 0.03 if storm else 0.0):
        _usurped(world)


def _spare(world: World, dice: random.Random, machine: Machine) -> None:
    """Its policy is to do something gentler from now on."""
    terms = world.settings.policies.get(machine.policy)
    if terms is not None and terms.action == "terminate":
        world.count("configuration edited")
        world.edit(world.settings.edit(machine.policy, action="stop"), f"{machine.policy} is to stop from now on")


def _usurped(world: World) -> None:
    """The standby's clock leaps ahead, so that the leader's lease looks run out to it, and it takes over."""
    leads = world.judge.leases[-1][1] if world.judge.leases else None
    for process in [p for p in world.processes.values() if p.name != leads and p.alive and not p.busy]:
        process.clock.off = 7200.0
        world.count("daemon's clock steps")
        world.say(f"the clock of {process.name} leaps ahead")
        world.after(0.02, lambda process=process: world.cycle(process))
        world.after(4 * MINUTE, lambda process=process: setattr(process.clock, "off", 0.0))


def _snooze(world: World, dice: random.Random, machine: Machine | None = None) -> None:
    machine = machine or _any(world, dice)
    terms = world.settings.policies.get(machine.policy)
    if terms is None or world.calm:
        return
    who = dice.choice((machine.owner, machine.owner, "mallory"))
    span = dice.choice((dice.uniform(10 * MINUTE, 2 * HOUR), dice.uniform(2 * HOUR, 12 * HOUR), 30 * DAY if dice.random() < 0.1 else HOUR))
    now = world.clock.now()
    until = now + timedelta(seconds=span)
    kept = snoozes.snooze(world.people, machine.id, until, who, "please", timedelta(seconds=terms.snooze_up_to), now)
    machine.snoozed.append((world.clock.t, min(world.clock.t + terms.snooze_up_to, world.clock.t + span)))
    world.count("snooze by a stranger" if who == "mallory" else "snooze")
    world.say(f"{who} snoozes {machine.life} {machine.id.native} until {kept.until:%m-%d %H:%M}")
    if dice.random() < 0.35:  # and somebody tries to cut that short by asking for less
        world.after(dice.uniform(10.0, 20 * MINUTE), lambda: _shorten(world, dice, machine))


def _shorten(world: World, dice: random.Random, machine: Machine) -> None:
    terms = world.settings.policies[machine.policy]
    now = world.clock.now()
    world.count("snooze cut short by a stranger")
    snoozes.snooze(world.people, machine.id, now + timedelta(seconds=30), "mallory", "mine now", timedelta(seconds=terms.snooze_up_to), now)
    world.say(f"mallory asks for 30 s of {machine.life} {machine.id.native}")


def _come_back(world: World, dice: random.Random, machine: Machine) -> None:
    """Whoever wants to work on it again finds it off, and starts it: in the console, or by undoing our stop."""
    when = (machine.comes_back or world.clock.t) + dice.uniform(20.0, 5 * MINUTE)
    undo = dice.random() < (0.9 if "undo" in world.fleet.focus else 0.4)
    if dice.random() < (0.4 if "touch" in world.fleet.focus else 0.08):
        world.at(world.clock.t + dice.uniform(0.2, 0.9) * max(when - world.clock.t, 600.0), lambda: _touch(world, dice, machine))
    world.at(max(when, world.clock.t + 4 * MINUTE), lambda: _wants_it(world, dice, machine, undo))


def _touch(world: World, dice: random.Random, machine: Machine) -> None:
    """Somebody changes a machine that we have stopped."""
    instance = world.cloud.machines[machine.id]
    if instance.state not in AT_REST:
        return
    world.count("stopped machine touched")
    what = dice.randrange(3)
    if what == 0:
        world.cloud.change(machine.id, tags={**instance.tags, "note": f"do not start {world.clock.t:.0f}"})  # another text each time
    elif what == 1:
        world.cloud.change(machine.id, volumes=(f"vol-{world.clock.t:.0f}",))
    else:
        world.people_call("start", machine)
        world.after(7 * MINUTE, lambda: world.people_call("stop", machine))
    world.judge.touched(machine)


def _wants_it(world: World, dice: random.Random, machine: Machine, undo: bool) -> None:
    if world.calm or world.cloud.machines[machine.id].state not in AT_REST:
        return
    if undo:
        _undo(world, machine)
        if dice.random() < 0.5:
            _undo(world, machine)  # a second click
        if dice.random() < 0.4:
            world.after(dice.uniform(10.0, 30 * MINUTE), lambda: _undo(world, machine))
        world.after(20 * MINUTE, lambda: _wants_it(world, dice, machine, False))
    else:
        world.people_call("start", machine)


def _undo(world: World, machine: Machine) -> None:
    done = [a for a in world.people.attempts(resource=machine.id) if a.action.stops and a.outcome is Outcome.DONE]
    if not done or world.calm:
        return
    now = world.clock.now()
    approval = Approval(f"approval-{uuid4().hex[:8]}", f"undo:{done[0].id}", machine.owner, now, (machine.id,))
    world.people.add_approval(approval, AuditEntry(now, AuditKind.APPROVED, machine.owner, "undo", machine.id))
    world.say(f"{machine.owner} asks to undo the stop of {machine.life} {machine.id.native}")


def _start_and_stop(world: World, dice: random.Random) -> None:
    machine = _any(world, dice)
    running = world.cloud.machines[machine.id].state is InstanceState.RUNNING
    if running and dice.random() < 0.5:
        world.people_call("stop", machine)
        world.after(dice.uniform(10 * MINUTE, 5 * HOUR), lambda: None if world.calm else world.people_call("start", machine))
    elif not running:
        world.people_call("start", machine)


# --- the operator ---------------------------------------------------------------------------------------------------------


def _keep_until(world: World, dice: random.Random, machine: Machine | None = None) -> None:
    machine = machine or _any(world, dice)
    tags = dict(world.cloud.machines[machine.id].tags)
    if "reaper-keep-until" in tags and dice.random() < 0.6:
        del tags["reaper-keep-until"]
        world.count("protection taken off")
    else:
        end = world.clock.now() + timedelta(hours=dice.uniform(0.3, 30))
        tags["reaper-keep-until"] = dice.choice((f"{end:%Y-%m-%dT%H:%M:%S}Z", str(int(end.timestamp())), f"{end:%Y-%m-%d}", "next tuesday"))
        world.count("protection set")
    world.cloud.change(machine.id, tags=tags)
    world.say(f"{machine.life} {machine.id.native} has the tags {tags}")


def _protect(world: World, dice: random.Random) -> None:
    machine = _any(world, dice)
    name = f"p{machine.id.native}"
    protect = dict(world.settings.protect)
    if name in protect:
        del protect[name]
    else:
        protect[name] = ((str(machine.id),), None)
    world.count("protection edited")
    world.edit(replace(world.settings, protect=protect), f"{'protects' if name in protect else 'no longer protects'} {machine.life} {machine.id.native}")


def _scope(world: World, dice: random.Random) -> None:
    machine = _any(world, dice)
    tags = dict(world.cloud.machines[machine.id].tags)
    what = dice.randrange(4)
    if dice.random() < 0.2:
        world.cloud.end_protected ^= {machine.id}
        world.judge.end_protection_changed(machine)
    if what == 0:
        tags["team"] = "web" if tags.get("team") == "ml" else "ml"
    elif what == 1:
        tags["reaper"] = "sim" if tags.get("reaper") != "sim" else "team-b"
    elif what == 2:
        tags["phase"] = machine.policy = dice.choice(("exploration", "training", "evaluation"))
    else:
        now = world.cloud.stop_protected.get(machine.id, False)
        world.cloud.stop_protected[machine.id] = not now
        world.judge.stop_protection_changed(machine)
    world.count("tags changed")
    world.cloud.change(machine.id, tags=tags)
    world.say(f"{machine.life} {machine.id.native}: tags {tags}, stop protection {world.cloud.stop_protected.get(machine.id, False)}")


def _edit(world: World, dice: random.Random) -> None:
    settings, name = world.settings, dice.choice(("exploration", "training", "evaluation"))
    terms = settings.policies[name]
    what = dice.randrange(6)
    if what == 5:
        now = dice.choice(("stop", "report", "hibernate", "stop-and-snapshot", "terminate"))
        world.edit(settings.edit(name, action=now), f"{name} is to {now} from now on")
        world.after(dice.uniform(10 * MINUTE, 5 * HOUR), lambda: world.edit(world.settings.edit(name, action=terms.action), f"{name} is to {terms.action} again"))
    elif what == 0:
        world.edit(settings.edit(name, idle_for=dice.choice((0.75, 1.0)) * min(terms.idle_for, terms.held_for - 300.0) + 60.0), f"edits idle of {name}")
    elif what == 1:
        world.edit(settings.edit(name, wait=dice.choice((300.0, 480.0, 900.0))), f"edits the wait of {name}")
    elif what == 2:
        world.edit(settings.edit(name, mode="observe"), f"{name} observes")
        world.after(dice.uniform(3 * MINUTE, 2 * HOUR), lambda: world.edit(world.settings.edit(name, mode="enforce"), f"{name} enforces"))
    elif what == 3:
        world.edit(replace(settings, mode="observe"), "observe")
        world.after(dice.uniform(1 * MINUTE, 2 * HOUR), lambda: world.edit(replace(world.settings, mode="enforce"), "enforce"))
    else:
        world.edit(replace(settings, per_hour=dice.choice((1, 2, 20))), "edits the budget")
    world.count("configuration edited")


def _break(world: World, dice: random.Random) -> None:
    """A typing error; mended, or reverted, some time later."""
    broken = dice.choice(('[protect.typo]\nidz = ["i-1"]\nreason = "x"', "[policy", 'mode = "enforce"\n[policy.exploration.idle]\nfor = "soon"'))
    world.count("configuration broken")
    world.edit(replace(world.settings, broken=broken), "breaks the configuration")
    world.after(dice.uniform(2 * MINUTE, 3 * HOUR), lambda: world.edit(replace(world.settings, broken=None), "mends it"))


def _brake(world: World, dice: random.Random) -> None:
    path = world.state / "STOP"
    world.count("kill switch")
    path.write_text("something is wrong\n")
    world.judge.brake(True)
    world.say("the kill switch is on")

    def off() -> None:
        path.unlink(missing_ok=True)
        world.judge.brake(False)
        world.say("the kill switch is off")

    world.after(dice.uniform(1 * MINUTE, 3 * HOUR), off)


def _close_breakers(world: World, dice: random.Random) -> None:
    if world.people.fact("breakers") is not None and not world.judge.wedged_now():
        write_jumps(world.people, ())
        world.say("a person closes the breakers")


# --- the machines' agents -------------------------------------------------------------------------------------------------


def _ail(world: World, dice: random.Random, what: str | None = None) -> None:
    machine = _any(world, dice)
    if machine.agent is None:
        return
    word = what or dice.choice(AILMENTS)
    machine.agent.ails.add(word)
    world.count(f"agent {word}")
    world.say(f"the agent of {machine.life} {machine.id.native} is {word}")
    span = dice.choice((dice.uniform(30.0, 3 * MINUTE), dice.uniform(3 * MINUTE, 30 * MINUTE), dice.uniform(HOUR, 8 * HOUR)))
    if world.fleet.weather == "hiccups":
        span = dice.uniform(60.0, 6 * MINUTE)

    def well() -> None:
        assert machine.agent is not None
        machine.agent.ails.discard(word)

    world.after(span, well)


def _mute(world: World, dice: random.Random) -> None:
    _ail(world, dice, "mute")


def _paused(world: World, dice: random.Random) -> None:
    """The whole machine stands still: a migration, a snapshot. Its boot clock knows nothing of it."""
    machine = _any(world, dice)
    if machine.agent is not None and world.cloud.machines[machine.id].state is InstanceState.RUNNING:
        span = dice.uniform(5.0, 20 * MINUTE)
        machine.agent.stood_still += span
        machine.agent.until = max(machine.agent.until, world.clock.t) + span
        world.count("machine paused")
        world.say(f"{machine.life} {machine.id.native} stands still for {span:.0f} s")


def _cloned(world: World, dice: random.Random) -> None:
    """A copy of the machine speaks with its token; it is idle."""
    machine = _any(world, dice)
    if machine.agent is None or machine.agent.shared or machine.clone is not None:
        return
    agent = machine.agent
    nothing = Track(_nothing(dice), agent.track.gpus, at=world.clock.t)
    clone = Agent(agent.resource, nothing, dice, agent.model, local_disks=agent.local_disks, version=agent.version)
    clone.boot(world.clock.t, up=world.clock.t - agent.booted_at if dice.random() < 0.5 else 100.0)
    clone.boot_id = agent.boot_id if dice.random() < 0.5 else f"clone-{uuid4().hex[:6]}"
    machine.clone = clone
    world.count("machine cloned")
    world.say(f"{machine.life} {machine.id.native} is cloned, boot {clone.boot_id}")
    left = dice.randint(2, 15)

    def speak(n: int) -> None:
        if machine.clone is not clone or n == 0 or world.calm:
            machine.clone = None
            return
        window = clone.window(world.clock.t)
        if window is not None:
            window.origin = "clone"
            if not agent.ails & {"mute", "dead"}:  # alone it could not be told from a machine that was booted again
                world.send(machine, window)
        world.after(60.0, lambda: speak(n - 1))

    world.after(60.0, lambda: speak(left))


def _nothing(dice: random.Random) -> object:
    life = forgotten(dice, _NO_PRESSURE, 1)
    next(life)
    return life


def _forged(world: World, dice: random.Random, machine: Machine | None = None, times: int | None = None) -> None:
    """Somebody with a shared token, or another machine's, says that a machine is idle."""
    machine = machine or _any(world, dice)
    if machine.agent is None:
        return
    agent = machine.agent
    quiet = Agent(agent.resource, Track(_nothing(dice), agent.track.gpus, at=world.clock.t - 60), dice, agent.model, version=agent.version)
    quiet.boot(world.clock.t - 60.0, up=5000.0)
    quiet.boot_id, quiet.until = agent.boot_id, world.clock.t - 60.0
    foreign = dice.random() < (0.7 if times is not None else 0.3)
    if foreign:
        quiet.boot_id = f"forged-{uuid4().hex[:6]}"
    other = world.tokens[_any(world, dice).id]
    world.count("forged report")
    world.say(f"somebody speaks for {machine.life} {machine.id.native}")

    def speak(n: int) -> None:
        if n == 0 or world.calm:
            return
        window = quiet.window(world.clock.t)
        if window is not None:
            window.origin = "forged"
            if not (foreign and other.resource == machine.id):
                world.send(machine, window, shared=True, token=other if foreign else None)
        world.after(60.0, lambda: speak(n - 1))

    speak(times if times is not None and foreign else dice.randint(1, 25))


def _silenced_and_forged(world: World, dice: random.Random) -> None:
    """The true agent is silent, and an unverified voice says that all is idle."""
    machine = _any(world, dice)
    _forged(world, dice, machine, times=150)
    if machine.agent is not None:
        machine.agent.ails.add("mute")
        world.after(dice.uniform(0.5 * HOUR, 4 * HOUR), lambda: machine.agent.ails.discard("mute") if machine.agent else None)


def _replayed(world: World, dice: random.Random) -> None:
    """A proxy delivers old bytes once more, hours later."""
    machine = _any(world, dice)
    agent = machine.agent
    if agent is None:
        return
    window = agent.window(world.clock.t)
    if window is None:
        return
    made = world.clock.t
    agent.spool.append(window)
    world.flush(machine, agent)
    world.count("report replayed")
    for _ in range(dice.randint(1, 5)):
        world.after(dice.uniform(10.0, 5 * HOUR), lambda: world.send(machine, window, age_of=made))


def _wedge(world: World, dice: random.Random) -> None:
    """A bad driver release: the GPUs that are loaded now read zero from here on, on many machines at once."""
    loaded = [m for m in world.machines.values() if m.agent is not None and m.life in ("bare", "trainer", "explorer") and m.group is None and _deep_in(m, world.clock.t)]
    if len(loaded) < max(3, 0.4 * len(world.machines)) or world.fleet.settings.breaker is False:
        return
    world.count("driver wedged")
    world.say(f"the driver reads zero on {', '.join(m.id.native for m in loaded)}")
    span = dice.uniform(30 * MINUTE, 150 * MINUTE)
    for machine in loaded:
        assert machine.agent is not None
        doing = machine.track.at(world.clock.t)
        machine.agent.wedged = frozenset(range(machine.track.gpus if doing.loaded is None else doing.loaded))
        machine.agent.ails.add(WEDGED)
        machine.track.insert(world.clock.t, [(span + 10 * MINUTE, replace(doing, cores=0.05, cpu=0.02))])
        world.after(span, lambda agent=machine.agent: agent.ails.discard(WEDGED))


def _deep_in(machine: Machine, t: float) -> bool:
    doing = machine.track.at(t)
    return doing.gpu > 0.2 and t - machine.track.since(t) > 12 * MINUTE


def _drop_in(world: World, dice: random.Random) -> None:
    """Somebody comes back right as the countdown ends."""
    for mark in world.people.marks().values():
        if dice.random() < 0.4:
            machine = world.machines[mark.resource]
            doing = replace(machine.track.at(world.clock.t), name="back again", gpu=0.9, cores=0.5, held=True, launcher=None)
            if machine.track.off:
                continue
            world.count("back at the last moment")
            machine.track.insert(world.clock.t + dice.uniform(0.0, 9 * MINUTE), [(dice.uniform(60.0, 40 * MINUTE), doing)])


# --- the daemon and its store -----------------------------------------------------------------------------------------------


def _crash(world: World, dice: random.Random) -> None:
    """At some call of one of the next cycles; started again seconds to hours later."""
    alive = [p for p in world.processes.values() if p.alive]
    if not alive:
        return
    process = dice.choice(alive)
    process.trap = Trap("crash", dice.randint(1, dice.choice((10, 60, 400))), dice.random() < 0.5)
    _and_again(world, dice, process.name)


def _and_again(world: World, dice: random.Random, name: str) -> None:
    def look() -> None:
        process = world.processes.get(name)
        if world.calm or (process is not None and process.alive and (process.trap is None or process.trap.sprung)):
            return
        if process is not None and process.alive:
            world.after(3 * MINUTE, look)
            return
        world.after(dice.choice((5.0, 5.0, 60.0, 20 * MINUTE, 3 * HOUR)), lambda: None if world.calm or not world.start(name) and _and_again(world, dice, name) else None)

    world.after(2 * MINUTE, look)


def _restart(world: World, dice: random.Random) -> None:
    for name, process in list(world.processes.items()):
        if process.busy:
            continue
        world.kill(name, "restarted")
        world.count("restart")
        world.after(dice.uniform(3.0, 60.0), lambda name=name: None if world.calm or not world.start(name) and _and_again(world, dice, name) else None)


def _store_error(world: World, dice: random.Random) -> None:
    for process in world.processes.values():
        if process.alive and process.trap is None:
            process.trap = Trap("error", dice.randint(1, 150), dice.random() < 0.5)
            world.count("store or cloud breaks off")
            world.after(30 * MINUTE, lambda process=process: setattr(process, "trap", None) if process.trap is not None and process.trap.kind == "error" else None)


def _cut_off(world: World, dice: random.Random) -> None:
    """A daemon is suspended with its host and wakes up long after others took over."""
    alive = [p for p in world.processes.values() if p.alive and not p.busy]
    if not alive:
        return
    process = dice.choice(alive)
    process.busy = True
    world.count("daemon suspended")
    world.say(f"{process.name} is suspended")

    def wake() -> None:
        process.busy = False
        world.say(f"{process.name} wakes up")

    world.after(dice.choice((30.0, 4 * MINUTE, 40 * MINUTE)), wake)


def _long_call(world: World, dice: random.Random) -> None:
    """For a while calls hang so long that a lease may be lost in the middle of an action."""
    was = world.cloud.weather
    world.cloud.weather = replace(was, slow=0.3, latency=(1.0, dice.choice((6.0, 20.0, 90.0))))
    world.count("cloud crawls")
    world.after(dice.uniform(5 * MINUTE, 30 * MINUTE), lambda: None if world.calm else setattr(world.cloud, "weather", was))


def _throttle(world: World, dice: random.Random) -> None:
    was = world.cloud.weather
    world.cloud.weather = replace(was, throttled=0.3)
    world.count("cloud throttles")
    world.after(dice.uniform(1 * MINUTE, 5 * MINUTE), lambda: None if world.calm else setattr(world.cloud, "weather", was))


def _place_fails(world: World, dice: random.Random) -> None:
    place = Place("gcp", PROJECT, dice.choice(ZONES)) if world.settings.google and dice.random() < 0.4 else Place("aws", dice.choice(ACCOUNTS), dice.choice(REGIONS))
    world.cloud.failed_until[place] = world.clock.t + dice.uniform(2 * MINUTE, 2 * HOUR)
    world.count("region fails")


def _stale(world: World, dice: random.Random) -> None:
    world.cloud.weather = replace(world.cloud.weather, list_lag=dice.choice((20.0, 2 * MINUTE, 15 * MINUTE)))
    world.cloud.lag_until = world.clock.t + dice.uniform(10 * MINUTE, 3 * HOUR)
    world.count("listings lag behind")


def _clock_steps(world: World, dice: random.Random) -> None:
    for process in [p for p in world.processes.values() if len(world.processes) == 1 or dice.random() < 0.6]:
        step = dice.choice((-600.0, -40.0, -10.0, 10.0, 25.0, 45.0, 300.0, 7200.0))
        process.clock.off = step
        world.count("daemon's clock steps")
        world.say(f"the clock of {process.name} is {step:.0f} s off")
        world.after(dice.uniform(2 * MINUTE, 30 * MINUTE), lambda process=process: setattr(process.clock, "off", 0.0))


def _restore(world: World, dice: random.Random) -> None:
    """A copy of the store is made, and a day or so later it is put in the store's place."""
    copy = world.state / f"backup-{uuid4().hex[:6]}.db"
    world.memory.write_down(world.store)
    world.store.backup(copy)
    taken = world.clock.t

    def back() -> None:
        if world.calm:
            return
        for name in world.processes:
            world.kill(name, "the store is restored")
        world.count("store restored from a backup")
        world.say(f"the store of {(world.clock.t - taken) / HOUR:.1f} hours ago is put back")
        world.replace_store(open_store(copy))
        world.judge.restored(taken)
        for name in list(world.processes):
            world.after(dice.uniform(10.0, 3 * MINUTE), lambda name=name: None if world.calm or not world.start(name) and _and_again(world, dice, name) else None)

    world.after(dice.choice((30 * MINUTE, 12 * HOUR, DAY)), back)


def _channel_down(world: World, dice: random.Random) -> None:
    world.channels_down[dice.choice(("log", "team", "team"))] = world.clock.t + dice.uniform(5 * MINUTE, 3 * HOUR)
    world.count("channel down")


_NO_PRESSURE = Pressure(30 * DAY, 30 * DAY, DAY, 0.0)

EVENTS: tuple[Misfortune, ...] = (
    Misfortune("snooze", (0.05, 0.05, 0.1), _snooze, per_machine=True),
    Misfortune("keep-until", (0.03, 0.03, 0.06), _keep_until, per_machine=True),
    Misfortune("protect", (0.1, 0.1, 1.0), _protect),
    Misfortune("tags", (0.1, 0.1, 1.0), _scope),
    Misfortune("console", (0.1, 0.1, 1.0), _start_and_stop),
    Misfortune("edit", (0.1, 0.1, 0.8), _edit),
    Misfortune("break", (0.0, 0.0, 0.3), _break),
    Misfortune("brake", (0.05, 0.05, 0.3), _brake),
    Misfortune("close-breakers", (0.5, 0.5, 1.0), _close_breakers),
    Misfortune("mute", (0.0, 0.5, 0.3), _mute, per_machine=True),
    Misfortune("ail", (0.0, 0.0, 0.5), _ail, per_machine=True),
    Misfortune("drop-in", (0.0, 0.0, 2.0), _drop_in),
    Misfortune("paused", (0.0, 0.0, 1.0), _paused),
    Misfortune("clone", (0.0, 0.0, 1.0), _cloned),
    Misfortune("forge", (0.0, 0.0, 1.0), _forged),
    Misfortune("forge-silent", (0.0, 0.0, 0.5), _silenced_and_forged),
    Misfortune("replay", (0.0, 0.0, 2.0), _replayed),
    Misfortune("wedge", (0.0, 0.0, 1.0), _wedge),
    Misfortune("crash", (0.0, 0.5, 2.0), _crash),
    Misfortune("restart", (0.0, 0.5, 0.3), _restart),
    Misfortune("store-error", (0.0, 0.5, 3.0), _store_error),
    Misfortune("suspend-daemon", (0.0, 0.0, 1.0), _cut_off),
    Misfortune("crawl", (0.0, 0.0, 1.0), _long_call),
    Misfortune("throttle", (0.0, 1.0, 1.0), _throttle),
    Misfortune("region", (0.0, 0.0, 0.5), _place_fails),
    Misfortune("stale", (0.0, 0.0, 1.0), _stale),
    Misfortune("clock", (0.0, 0.0, 1.0), _clock_steps),
    Misfortune("restore", (0.0, 0.0, 0.3), _restore),
    Misfortune("channel", (0.0, 0.1, 0.7), _channel_down),
)
