"""
The world: a heap of events, true lives, agents that report, daemons that cycle, and judges that watch every call.

Time jumps from event to event. Dull times are passed in long steps (a cycle every eight minutes, each with one report that
covers them; sixteen where no machine comes to its term meanwhile); as soon as somebody's countdown runs, everything goes at
the configured pace.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from reaper.errors import ConfigurationError, NotDelivered, ReaperError
from reaper.model.kinds.instance import Hindrance, InstanceState
from reaper.model.mark import Stage
from reaper.model.resource import ResourceId
from reaper.ports import Message, Token
from reaper.service.ingest import Rejected
from reaper.store import open_store
from tests.simulation import process as processes
from tests.simulation.agents import Agent, Window, to_bytes
from tests.simulation.clock import SimClock
from tests.simulation.cloud import CloudWeather, SimCloud
from tests.simulation.fleet import Fleet, Heard, Machine
from tests.simulation.lives import DAY, MINUTE
from tests.simulation.process import Process
from tests.simulation.seats import Crash, Memory, StoreSeat
from tests.simulation.settings import Settings

DULL = (7.0 * MINUTE, 8.4 * MINUTE)
DOZE = 15.6 * MINUTE
DRAIN = 40 * MINUTE


class World:
    """``told``: the story so far. ``judge``: see judge.Judge; it is asked at every verb and every tick."""

    def __init__(self, fleet: Fleet, state: Path, make_judge: Callable[["World"], Any]) -> None:
        self.fleet, self.state, self.settings = fleet, state, fleet.settings
        self.dice = random.Random(f"world {fleet.seed}")
        self.clock = SimClock(fleet.base)
        self.end = fleet.days * DAY
        self.cloud = SimCloud(self.clock, random.Random(f"cloud {fleet.seed}"), self.wait, self._arrived, self._went, self.count, self._read)
        self.machines: dict[ResourceId, Machine] = {machine.id: machine for machine in fleet.machines}
        self.faults: Counter[str] = Counter()
        self.told: list[str] = []
        self.processes: dict[str, Process] = {}
        self.channels_down: dict[str, float] = {}
        self.message_takes = (0.0, 0.3)
        self.wire = (0.0, 1.0)  # seconds that a report spends on the way
        self.late_share = 0.0
        self.calm = False  # set when the run is over and only loose ends are tied up
        self.one_is_enough = False
        self.restored_at: list[float] = []
        self.caller: Process | None = None
        self.actor = "people"
        self.on_warning: list[Callable[[Machine, Message], None]] = []
        self.on_read: list[Callable[[Machine], None]] = []
        self.on_our_stop: list[Callable[[Machine], None]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._depth = 0
        self.store: Any = open_store(":memory:")
        self.memory = Memory()
        self.people: Any = self._seat_of_people()
        for instance in fleet.instances:
            self.cloud.put(instance)
            quirks = self.machines[instance.id].quirks
            if "stop-protected" in quirks:
                self.cloud.stop_protected[instance.id] = self.dice.choice((True, True, None))
            for quirk, which in (("end-protected", self.cloud.end_protected), ("hidden-owner", self.cloud.hidden_owners), ("bad-key", self.cloud.bad_keys)):
                if quirk in quirks:
                    which.add(instance.id)
        self.tokens = {id: Token(f"t{n}", b"", fleet.base, id) for n, id in enumerate(self.machines)}
        self.shared_token = Token("shared", b"", fleet.base, None)
        for machine in self.machines.values():
            if machine.agent is not None:
                machine.agent.boot(0.0, up=self.dice.uniform(0.2, 3.0) * DAY)
        self.judge: Any = make_judge(self)
        self.at(0.0, self._tick)

    # --- time ----------------------------------------------------------------------------------------------------------

    def at(self, t: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (round(t, 3), next(self._order), event))

    def after(self, span: float, event: Callable[[], None]) -> None:
        self.at(self.clock.t + span, event)

    def run(self) -> None:
        self._until(self.end)
        self.calm = True
        self.say("--- the weather clears; loose ends are tied up")
        self._clear_up()
        self._until(self.end + 0.5 * DRAIN)
        self.edit(replace(self.settings, mode="observe"), "nothing new is begun")
        self._until(self.end + DRAIN)

    def wait(self, span: float) -> None:
        """Somebody waits for an answer; the world goes on."""
        if self._depth >= 3:  # whoever waits inside of others' waiting is not worth the stack
            self.clock.t = round(self.clock.t + span, 3)
            return
        self._depth += 1
        caller = self.caller
        try:
            self._until(self.clock.t + span)
        finally:
            self._depth -= 1
            self.caller = caller

    def _until(self, end: float) -> None:
        end = round(end, 3)
        while self._heap and self._heap[0][0] <= end:
            t, _, event = heapq.heappop(self._heap)
            self.clock.t = max(self.clock.t, t)
            event()
        self.clock.t = max(self.clock.t, end)

    def say(self, text: str) -> None:
        self.told.append(f"{self.clock.now():%m-%d %H:%M:%S} {text}")

    def count(self, fault: str) -> None:
        self.faults[fault] += 1

    # --- ticks -----------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        t = self.clock.t
        for machine in self.machines.values():
            self.report(machine)
        self.memory.write_down(self.store)
        self.judge.account()
        hurried = any(self._counts_down(mark) for mark in self.people.marks().values()) or self.judge.mornings.near()
        for n, process in enumerate([p for p in self.processes.values() if p.alive]):
            # Now and then well after the reports: cycles and agents keep no step.
            offset = self.dice.uniform(2.0, 32.0) if not hurried or self.dice.random() < 0.85 else self.dice.uniform(32.0, 0.8 * self.settings.cycle)
            self.at(t + offset + 3 * n, lambda process=process: self.cycle(process))
        pace = self._pace(hurried)
        if pace == DOZE:
            self.at(t + 0.5 * DOZE, self._doze)
        if len(self.processes) > 1:
            for n in range(1, int(pace // 100.0)):  # its cycles in between would have kept the lease
                self.at(t + n * 100.0, self._keep_lead)
        self.at(t + pace, self._tick)

    def _keep_lead(self) -> None:
        process = self.processes.get(self.judge.leases[-1][1]) if self.judge.leases else None
        if process is not None and process.alive and not process.busy:
            with suppress(ReaperError):
                process.leader.renew()

    def _doze(self) -> None:
        """In a long step: the cycle in between would have found nothing, and said that it was there."""
        for process in self.processes.values():
            if process.alive and not process.busy and process.result is not None and not self.people.marks():
                with suppress(ReaperError):
                    process.leader.renew()
                    process.cycle._continuity.remember(process.paper.current()[0], process.clock.now())
                    self.judge.cycle_ends(process)

    def _pace(self, hurried: bool) -> float:
        """Until the next tick."""
        if self.calm:
            return 100.0
        if hurried:
            return self.settings.cycle * self.dice.uniform(0.85, 1.05)
        dull, ahead = self._dull(), self.judge.mornings.quiet_for()
        return dull if ahead > dull else max(min(ahead, DULL[0]), 0.5 * self.settings.cycle)

    def _dull(self) -> float:
        dull = self.dice.uniform(*DULL)
        if len(self.processes) > 1 or self.people.marks() or any(self.judge.useful.nears_its_term(m, DOZE) for m in self.machines.values()):
            return dull
        return DOZE

    def _counts_down(self, mark: Any) -> bool:
        terms = self.settings.policies.get(mark.policy)
        if self.settings.mode != "enforce" or terms is None or terms.mode != "enforce" or mark.paused is not None:
            return False
        # One that is due for long is withheld by somebody; that may last.
        return mark.stage is not Stage.DUE or mark.due_at is None or self.clock.t - self.clock.seconds(mark.due_at) <= 15 * MINUTE

    # --- daemons ---------------------------------------------------------------------------------------------------------

    def start(self, name: str, off: float = 0.0) -> bool:
        """A daemon is started; False: it would not start."""
        try:
            self.processes[name] = processes.start(self, name, self.clock, self.cloud, self.store, self.memory, self.state, off)
        except (ConfigurationError, ReaperError) as error:
            said = str(error).replace(f"{self.state}/", "")  # its name is drawn by the system
            self.say(f"{name} does not start: {said[:300]}")
            if isinstance(error, ConfigurationError) and self.settings.broken is None:
                self.judge.accuse("unbroken", f"a configuration that is whole is refused: {error}")
            self.processes.pop(name, None)
            return False
        self.say(f"{name} is started")
        return True

    def kill(self, name: str, because: str) -> None:
        process = self.processes.get(name)
        if process is not None and process.alive:
            process.alive = False
            self.say(f"{name} dies: {because}")

    def cycle(self, process: Process) -> None:
        if not process.alive or process.busy or self.processes.get(process.name) is not process:
            return
        process.busy, process.armed, before = True, True, self.caller
        self.caller, process.result, process.began = process, None, self.clock.t
        try:
            _, refused = process.paper.current()
            process.force = process.paper.good if refused is None else replace(process.paper.good, broken=self.settings.broken)
            self.judge.cycle_begins(process)
            process.result = process.daemon.once(process.daemon.bounded(), refused)
        except Crash as crash:
            self.count("crash")
            self.kill(process.name, f"at {crash}")
        finally:
            process.busy = process.armed = False
            self.caller = before
            self.judge.cycle_ends(process)

    # --- reports ---------------------------------------------------------------------------------------------------------

    def report(self, machine: Machine) -> None:
        agent, t = machine.agent, self.clock.t
        if agent is None or self.cloud.machines[machine.id].state is not InstanceState.RUNNING:
            return
        end = t - self.dice.uniform(0.0, 6.0)
        if end - agent.until > DULL[1] + MINUTE and 0.0 < sum(b - a for a, b in agent.track.worked_in(agent.until, end)) < end - agent.until:
            self._spool(agent, (agent.until + end) / 2)  # a long step tells when work ended as exactly as others do
        self._spool(agent, end)
        if "mute" in agent.ails:
            return
        if self.late_share and self.dice.random() < self.late_share:
            self.count("late report")
            self.after(self.dice.uniform(30.0, 15 * MINUTE), lambda: self.flush(machine, agent))
            return
        self.flush(machine, agent)

    def _spool(self, agent: Agent, end: float) -> None:
        window = agent.window(end)
        if window is not None:
            agent.spool = [*agent.spool, window][-200:]

    def flush(self, machine: Machine, agent: Agent) -> None:
        """Send what is in the spool, oldest first, to any door that is open."""
        if "mute" in agent.ails or self.cloud.machines[machine.id].state is not InstanceState.RUNNING:
            return
        while agent.spool:
            if not self.send(machine, agent.spool[0], shared=agent.shared, hidden=self.dice.uniform(*self.wire)):
                return
            agent.spool.pop(0)

    def send(self, machine: Machine, window: Window, *, shared: bool = False, hidden: float = 0.0, token: Token | None = None, age_of: float | None = None) -> bool:
        """True: somebody took it, or refused it for good. ``age_of``: when these bytes were made, if long ago."""
        doors = [p for p in self.processes.values() if p.alive]
        if not doors:
            return False
        leads = self.judge.leases[-1][1] if self.judge.leases else None
        door = next((p for p in doors if p.name == leads), doors[0])
        if len(doors) > 1 and self.dice.random() < 0.02:
            door = self.dice.choice(doors)  # what comes in elsewhere makes the leader fold the whole history again
        body = to_bytes(window, self.clock.t if age_of is None else age_of, hidden)
        token = token or (self.shared_token if shared else self.tokens[machine.id])
        try:
            accepted = door.ingest.accept(body, token)
        except Rejected as refused:
            self.count(f"report refused: {refused.reason}")
            return True
        except ReaperError:
            return False
        if not accepted.duplicate:
            believable = window.origin == "own" and token.resource == machine.id
            hooks: Any = window.body.get("hooks")
            hook = None if hooks is None else hooks.get("outcome", "nothing")
            machine.heard.append(Heard(window.start, window.end, self.clock.t, believable, window.origin, window.ails, hook, window.seen.held))
        return True

    # --- what daemons do -------------------------------------------------------------------------------------------------

    def on_message(self, channel: str, message: Message) -> None:
        """Raises NotDelivered."""
        self.wait(self.dice.uniform(*self.message_takes))
        if self.clock.t < self.channels_down.get(channel, 0.0):
            self.count("message not delivered")
            raise NotDelivered(f"{channel} is down")
        machine = self.machines.get(message.resource) if message.resource is not None else None
        if machine is None:
            return
        if message.event == "warned":
            machine.warned.append((self.clock.t, message.policy or ""))
            self.say(f"{machine.life} {machine.id.native} warned by {channel} under {message.policy}: {message.because}")
            for hear in self.on_warning:
                hear(machine, message)
        elif message.event == "cleared":
            self.say(f"{machine.life} {machine.id.native} cleared: {message.because}")

    def on_lease(self, name: str, lease: Any) -> None:
        self.judge.leases.append((self.clock.t, name, lease))

    def _arrived(self, verb: str, resource: ResourceId, who: str) -> None:
        machine = self.machines[resource]
        self.say(f"{who} calls {verb} of {machine.life} {resource.native}, which is {machine.track.at(self.clock.t).name}")
        self.judge.verb(verb, machine, self.processes[who])
        self.actor = who

    def _read(self, resource: ResourceId) -> None:
        for hear in self.on_read:
            hear(self.machines[resource])

    def _went(self, resource: ResourceId, verb: str) -> None:
        machine, t, who = self.machines[resource], self.clock.t, self.actor
        self.actor = "people"
        if verb == "terminate":
            self.judge.ended(machine)
        elif verb in ("stop", "hibernate", "suspend"):
            machine.comes_back = machine.track.turn_off(t)
            machine.clone = None
            machine.sleeps = verb == "suspend"
            takes = self.dice.uniform(15.0, 150.0) * (4.0 if verb == "hibernate" else 1.0)
            going, gone = (InstanceState.SUSPENDING, InstanceState.SUSPENDED) if machine.sleeps else (InstanceState.STOPPING, InstanceState.STOPPED)
            self.after(takes, lambda: self._settle(resource, going, gone))
            self.judge.went_down(machine, who)
            if who != "people":
                for hear in self.on_our_stop:
                    hear(machine)
        else:
            self.judge.goes_up(machine, who)
            self.after(self.dice.uniform(10.0, 60.0), lambda: self._boot(machine))

    def _settle(self, resource: ResourceId, was: InstanceState, becomes: InstanceState) -> None:
        if self.cloud.machines[resource].state is was:
            self.cloud.change(resource, state=becomes)

    def _boot(self, machine: Machine) -> None:
        if self.cloud.machines[machine.id].state is not InstanceState.PENDING:
            return
        if self.dice.random() < self.cloud.weather.bounces:
            self.count("start bounces")
            self.cloud.change(
                machine.id, state=InstanceState.SUSPENDED if machine.sleeps else InstanceState.STOPPED, changed_at=self.clock.now(), state_reason="Client.InternalError", fell_back=Hindrance.KEY
            )
            self.say(f"{machine.life} {machine.id.native} falls back to stopped")
            return
        self.cloud.change(machine.id, state=InstanceState.RUNNING, state_reason=None, fell_back=None)
        machine.track.turn_on(self.clock.t, self.dice.uniform(60.0, 200.0))
        machine.comes_back = None
        self.judge.came_up(machine)
        if machine.agent is not None and machine.sleeps:
            machine.agent.wake(self.clock.t)
            machine.agent.ails.discard("wedged")
        elif machine.agent is not None:
            machine.agent.boot(self.clock.t)
            machine.agent.ails.discard("wedged")

    def people_call(self, verb: str, machine: Machine) -> None:
        """Somebody uses the console. What cannot be done is not done."""
        self.actor = "people"
        with suppress(ReaperError):
            self.cloud.carry_out(verb, machine.id)
            self.say(f"people {verb} {machine.life} {machine.id.native}")

    # --- the store -------------------------------------------------------------------------------------------------------

    def _seat_of_people(self) -> Any:
        return StoreSeat(self.store, self.memory, lambda: None, lambda lease: None)

    def replace_store(self, store: Any) -> None:
        self.store.close()
        self.store, self.memory = store, Memory()
        self.memory.windows = {(seen.resource, seen.boot_id, seen.seq) for seen in store.observations(self.fleet.base)}
        self.people = self._seat_of_people()

    def edit(self, settings: Settings, what: str) -> None:
        self.say(f"the operator: {what}")
        self.settings = settings

    def _clear_up(self) -> None:
        self.cloud.weather = CloudWeather()
        self.cloud.failed_until.clear()
        self.cloud.cut.clear()
        self.channels_down.clear()
        self.late_share, self.message_takes, self.wire = 0.0, (0.0, 0.3), (0.0, 1.0)
        for machine in self.machines.values():
            machine.clone = None
            if machine.agent is not None:
                machine.agent.ails.clear()
        if self.settings.broken is not None:
            self.settings = replace(self.settings, broken=None)
        for name, process in list(self.processes.items()):
            process.trap, process.clock.off = None, 0.0
            if not process.alive:
                self.start(name)
        if not self.processes:
            self.start("a")
