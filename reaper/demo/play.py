"""
The demo: run it, follow it, judge it.

It ends as soon as all that should stop has stopped and some further cycles have confirmed the rest; at once when a wrong
one stops; and without success at the deadline.
"""

import queue
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from reaper.clock import SystemClock
from reaper.decide.budget import price_of
from reaper.demo.events import Event, Screen, Summary
from reaper.demo.local_ec2 import only_local_credentials
from reaper.demo.running import Running, set_up
from reaper.demo.story import Machine, told
from reaper.demo.telling import Seen
from reaper.model.audit import AuditKind
from reaper.wiring import google_client_is_there

DEADLINE_S = 85.0
CONFIRMED_BY = 3
"""Cycles in a row, after the last stop, in which every other machine is spared for the reason that the story names."""

_TICK_S = 0.25
_GONE = ("stopping", "stopped", "shutting-down", "terminated")


def play(screen: Screen, story: tuple[Machine, ...] | None = None, deadline_s: float = DEADLINE_S) -> Summary:
    """
    Run it and judge it. ``story`` None: the one that can be told here. Raises NotInstalled without moto, ReaperError when it cannot even begin; KeyboardInterrupt
    passes. In every case its threads have ended and its folder is gone.
    """
    began = SystemClock().monotonic()
    if story is None:
        story = told(google_client_is_there())
    local = "a local EC2 API and a local Compute Engine" if any(machine.cloud == "gcp" for machine in story) else "a local EC2 API"
    screen.tell(Event("starting", f"{local}, a report door, a fleet and its agents"), 0.0)
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="reaper-demo-")))
        closing.enter_context(only_local_credentials(folder))
        running = closing.enter_context(set_up(folder, story, screen, began))
        running.open()
        return _follow(running, screen, story, began, deadline_s)
    raise AssertionError("nothing above swallows an exception")


def _follow(running: Running, screen: Screen, story: tuple[Machine, ...], began: float, deadline_s: float) -> Summary:
    clock = running.parts.clock
    expected = {machine.name for machine in story if machine.stops}
    confirmed, last = 0, Seen()
    while True:
        if clock.monotonic() - began > deadline_s:
            return _judge(running, screen, last, (f"not done within {deadline_s:.0f} s", *_missing(story, last)))
        try:
            seen = running.cycles.get(timeout=_TICK_S)
        except queue.Empty:
            screen.tick(clock.now())
            continue
        if seen.failed is not None:
            return _judge(running, screen, last, (seen.failed,))
        last = seen
        for event in seen.events:
            screen.tell(event, running.elapsed())
        screen.show(seen.lines)
        screen.tick(clock.now())
        if seen.stopped - expected:
            return _judge(running, screen, seen, ())
        confirmed = confirmed + 1 if seen.twists_done and not _missing(story, seen) else 0
        if confirmed >= CONFIRMED_BY:
            return _judge(running, screen, seen, ())


def _missing(story: tuple[Machine, ...], seen: Seen) -> tuple[str, ...]:
    """What is not yet, or not any more, as the story has it."""
    found = []
    for machine in story:
        if machine.stops:
            if machine.name not in seen.stopped:
                found.append(f"{machine.name} should be stopped and runs: {seen.because.get(machine.name, 'never seen')}")
        elif seen.words.get(machine.name) != machine.ends:
            found.append(f"{machine.name} should be spared by {machine.ends!r}: {seen.because.get(machine.name, 'never seen')}")
    return tuple(found)


def _judge(running: Running, screen: Screen, seen: Seen, wrong: tuple[str, ...]) -> Summary:
    """By the clouds' own word."""
    states = running.states()
    stopped = sorted(name for name, state in states.items() if state in _GONE)
    expected = {machine.name for machine in running.story if machine.stops}
    wrong = (
        *wrong,
        *(f"{name} was stopped and should have been spared" for name in stopped if name not in expected),
        *(f"{name} should have been stopped and is {states.get(name, 'not there')}" for name in sorted(expected - set(stopped))),
    )
    types = {machine.name: machine.type for machine in running.story}
    prices = [price_of(types[name], running.configuration.prices) for name in stopped]
    stories = {name: tuple(_story(running, name)) for name in stopped}
    spared = {machine.name: seen.because.get(machine.name, "never seen") for machine in running.story if machine.name not in stopped}
    summary = Summary(
        tuple(stopped), spared, tuple(dict.fromkeys(wrong)), running.elapsed(), sum(p for p in prices if p is not None), stories
    )  # fmt: skip
    screen.finish(summary)
    return summary


def _story(running: Running, name: str) -> Iterator[str]:
    resource = running.resource(name)
    for entry in running.parts.store.audit(resource=resource) if resource is not None else ():
        if entry.kind is not AuditKind.TOKEN:
            yield f"{entry.at:%H:%M:%S} {entry.kind.value}: {entry.because}"
