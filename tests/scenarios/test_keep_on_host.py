"""A late night that somebody on the machine asked for: from `reaper-agent keep` over the wire to a machine that stays up past its hours."""

from datetime import timedelta
from pathlib import Path

import pytest

from agent import report as wire
from agent.keeps import Keeps
from reaper.service.host_keeps import HostKeeps
from tests.agent.doubles import BOOT, Lines, ManualClock
from tests.scenarios.test_hours import at, hours, terms
from tests.scenarios.world import MINUTE, World


class Host:
    """The agent's side, on a clock of its own, and the door's. ``tick``: a minute of both."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.clock, self.id = world, ManualClock(), world.lives["i-a"].id
        self.keeps = Keeps(folder, BOOT, self.clock, Lines(), lambda uid: "mia")
        self.door = HostKeeps(world.store, world.clock)

    def report(self) -> None:
        up_s = self.clock.boot_s()
        told = wire.Report(str(self.id), BOOT, up_s, round(up_s * 1000), 60.0, 0.0, wire.Sampler("ok"), keep=self.keeps.tell(str(self.id), up_s))
        now = self.world.clock.now()
        self.door.heard(self.id, wire.decode(wire.encode(told)).keep, now, now, newest=True)

    def until(self, clock: str) -> None:
        before = self.world.clock.now()
        while before.strftime("%H:%M") != clock:
            self.report()
            self.world.tick()
            self.clock.move((self.world.clock.now() - before).total_seconds())
            before = self.world.clock.now()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, terms(hours(), snooze_up_to=timedelta(hours=3)))
    made.add("i-a")
    at(made, "18:12", run=False)
    return made


def test_a_keep_asked_on_the_machine_holds_it_past_its_hours_and_lets_go_when_it_ends(world: World, tmp_path: Path) -> None:
    host = Host(world, tmp_path)
    host.until("18:50")
    host.keeps.ask(1000, 7200.0, "a demo at eight")
    host.until("20:48")
    held = (world.stopped("i-a"), world.results[-1].rows[0].decision.because)
    host.until("22:00")

    assert held[0] is False
    assert "mia on the machine" in held[1]
    assert world.stopped("i-a")


def test_a_keep_holds_no_longer_than_the_operator_allows_however_long_and_often_it_is_asked_for(world: World, tmp_path: Path) -> None:
    host = Host(world, tmp_path)
    host.until("18:50")
    for _ in range(3):
        host.keeps.ask(1000, 86_400.0, "for ever")
        host.until((world.clock.now() + 40 * MINUTE).strftime("%H:%M"))
    held = world.stopped("i-a")
    host.until("22:59")

    assert held is False
    assert world.stopped("i-a")


def test_a_keep_that_was_taken_back_holds_nothing(world: World, tmp_path: Path) -> None:
    host = Host(world, tmp_path)
    host.until("18:30")
    host.keeps.ask(1000, 7200.0, "a demo at eight")
    host.until("18:45")
    host.keeps.off(1000)
    host.until("20:00")

    assert world.stopped("i-a")
