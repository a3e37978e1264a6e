"""
When things happen to machines: by what the reaper has seen, never by the clock, so that a slow computer tells the same story.
"""

from collections.abc import Callable, Mapping

from reaper.demo.events import Event
from reaper.demo.story import Act, Machine, Twist
from reaper.model.mark import Stage
from reaper.model.signal import State
from reaper.service.cycle import Row

WORKED_FOR, WHOLE_FOR = 4, 2
"""Cycles, so that a viewer, too, has seen how it was before. The GPU is lost before a countdown can have ended."""


class Director:
    """``hands``: does to a machine what its twist says. Each happens once; `done` says whether all have."""

    def __init__(self, story: tuple[Machine, ...], hands: Callable[[Machine, Twist], None]) -> None:
        self._waiting = {machine.name: machine for machine in story if machine.twist is not None}
        self._hands = hands
        self._cycles: dict[str, int] = {}

    @property
    def done(self) -> bool:
        return not self._waiting

    def see(self, rows: Mapping[str, Row]) -> list[Event]:
        """What happens after the cycle that left these rows, by name."""
        happened: list[Event] = []
        anyone_warned = any(row.candidate.mark is not None and row.candidate.mark.stage is not Stage.NOMINATED for row in rows.values())
        for machine in tuple(self._waiting.values()):
            row = rows.get(machine.name)
            match machine.twist:
                case Twist.JOB_ENDS:
                    ready = self._seen(machine, row is not None and row.decision.state is State.WORKING, WORKED_FOR)
                case Twist.GPU_FALLS_OFF:
                    ready = self._seen(machine, row is not None and row.decision.state is State.IDLE, WHOLE_FOR)
                case Twist.AGENT_DIES:
                    mark = row.candidate.mark if row is not None else None
                    ready = mark is not None and mark.stage is not Stage.NOMINATED
                case Twist.LAUNCHED:
                    ready = anyone_warned
                case _:
                    continue
            if ready:
                del self._waiting[machine.name]
                self._hands(machine, machine.twist)
                happened.append(Event("twist", WHAT_HAPPENS[machine.twist], machine.name, {"twist": machine.twist.value}))
        return happened

    def _seen(self, machine: Machine, as_it_was: bool, cycles: int) -> bool:
        self._cycles[machine.name] = self._cycles.get(machine.name, 0) + as_it_was
        return self._cycles[machine.name] >= cycles


WHAT_HAPPENS: Mapping[Twist, str] = {
    Twist.JOB_ENDS: "its job ends",
    Twist.GPU_FALLS_OFF: "one of its two GPUs falls off the bus",
    Twist.AGENT_DIES: "its agent dies in the middle of the countdown",
    Twist.LAUNCHED: "it is launched",
}

THEN: Mapping[Twist, Act] = {Twist.JOB_ENDS: Act.NOTHING, Twist.GPU_FALLS_OFF: Act.ONE_LOST}
