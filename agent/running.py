"""
`reaper-agent run`: the real sources, the sender and the loop, put together.

Loading this loads all that a running agent needs; `status`, `doctor` and --help leave it alone.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable, Optional, Tuple

from agent import (  # fmt: skip
    disks,
    hook,
    host,
    identity,
    job_memory,
    jobs,
    keeps,
    launchers,
    links,
    loop,
    nvml,
    people,
    presence,
    procs,
)
from agent.clock import BootClock, boot_id
from agent.config import ConfigError, Settings, read_token
from agent.exits import DONE, FAILED, refuse
from agent.gpu import NvmlGpus
from agent.loader import ProcLoaders
from agent.log import configured
from agent.readings import LoaderSource
from agent.sender import Post, Sender
from agent.spool import Spool
from agent.state import load_memory

TIDY_EVERY = 60  # windows


def run(settings: Settings, once: bool) -> int:
    """Run the real agent until it is told to stop; ``once``: for one report. Returns the exit code."""
    try:
        read_token(settings)
    except ConfigError as error:
        return refuse(error)
    log, clock, stop = configured(), BootClock(), threading.Event()
    _warn_of_open_token(settings, log)
    try:
        boot = boot_id()
    except OSError as error:
        print("reaper-agent: no boot id (%s); the agent needs Linux with /proc" % error, file=sys.stderr)
        return FAILED
    end_on_signals(stop)

    with contextlib.suppress(nvml.WrongModule):  # which the first reading reports
        nvml.load()
    gc.freeze()  # what is loaded now stays; the collector need not walk it again and again
    gc.set_threshold(10_000, 20, 20)  # a beat makes some hundred objects, hardly one of them in a circle
    gc.enable()

    loaders = ProcLoaders()
    hooked, hang_up = (loaders, lambda: None) if once else _hooked(settings, loaders, log)
    kept = keeps.Keeps(settings.state_dir, boot, clock, log, people.Names().of)
    ask = keeps.Door(settings.keep_socket, kept, log)
    if not once:
        ask.open()
    spool = Spool(settings.spool_dir, boot, settings.spool_reports, settings.spool_mib << 20, log)
    sender = Sender(Post(settings, clock), spool, clock, log, settings.window_s)
    if not once:
        sender.start()
    loop.run_loop(
        settings,
        NvmlGpus(clock, host.nobodys_work(settings.nobodys_work), log),
        host.ProcHost(),
        stop,
        loaders=hooked,
        work=_work(settings, clock, loaders.born, boot, log),
        disks=disks.LocalDisks(),
        keeps=kept,
        who=_who(settings, stop, clock, log, load_memory(settings.state_dir, log).identity(boot)),
        outbox=_Once(sender) if once else _exported(settings, sender, clock, log),
        boot_id=boot,
        clock=clock,
        log=log,
        notify=loop.notify_systemd,
        windows=1 if once else None,
        # Python keeps freed tuples for later, 2,000 of each of twenty sizes, and never reuses some: 2 MiB in a week. A whole
        # collection lets them go.
        tidy=lambda windows: gc.collect() if windows % TIDY_EVERY == 0 else None,
    )
    hang_up()
    ask.close()
    if not once:
        return DONE
    delivery = sender.delivery()
    print("report taken by %s" % settings.reaper if delivery.last_sent_seq else "no report taken: %s" % (delivery.problem or "identity not known"))
    return DONE if delivery.last_sent_seq is not None else FAILED


def end_on_signals(stop: threading.Event) -> None:
    """Set ``stop`` on SIGTERM and SIGINT."""

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        # Not here: this runs in the middle of whatever the main thread does, and if that is `stop.wait`, which holds the lock
        # that `stop.set` takes, it would wait for itself for ever.
        _thread.start_new_thread(stop.set, ())

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def _work(settings: Settings, clock: BootClock, born: Callable[[int], Optional[int]], boot: str, log: Any) -> Any:
    reads, names = procs.Procs(), people.Names()
    short = settings.window_s < 30.0  # which only a reaper on this machine takes
    look_for = launchers.Launchers(reads, host.nobodys_work(settings.nobodys_work))
    return people.ProcWork(
        clock,
        jobs.Jobs(reads, look_for, max(1.0, settings.window_s) if short else jobs.SETTLE_S, born, job_memory.JobMemory(settings.state_dir, boot, log)),
        people.Holders(reads, names, born),
        names,
        people_every_s=settings.window_s if short else people.PEOPLE_EVERY_S,
        presence=presence.Presence(reads, names.of, host.nobodys_name(settings.nobodys_work)),
        links=links.LinkLook(reads),
        presence_every_s=settings.window_s if short else people.PRESENCE_EVERY_S,
    )


def _hooked(settings: Settings, loaders: ProcLoaders, log: Any) -> Tuple[LoaderSource, Callable[[], None]]:
    """The loaders, with what jobs tell of their own waiting where the socket can be had; and what ends that."""
    if settings.hook_socket is None:
        return loaders, lambda: None
    door = hook.Socket(settings.hook_socket, log)
    return (hook.HookedLoaders(loaders, door, log), door.close) if door.open() else (loaders, lambda: None)


def _exported(settings: Settings, sender: Any, clock: BootClock, log: Any) -> Any:
    """The outbox, with the page for Prometheus before it where the settings ask for one."""
    if settings.metrics_listen is None:
        return sender
    from agent.exporter import Exporter

    exporter = Exporter(sender, clock, log)
    exporter.start(settings.metrics_listen)
    return exporter


class _Once:
    """An outbox that sends within the loop's own thread, since --once has nothing else to do."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self.delivery, self.forget, self.close = sender.delivery, sender.forget, sender.close

    def hand(self, report: Any) -> None:
        self._sender.hand(report)
        self._sender.pump()


def _who(settings: Settings, stop: threading.Event, clock: BootClock, log: Any, remembered: Any) -> Any:
    if settings.resource is not None:
        named = identity.Identity(settings.resource)
        return lambda: named
    who = identity.Who(lambda: identity.ask_metadata(settings.metadata), stop, clock, log, remembered)
    who.start()
    return who.current


def _warn_of_open_token(settings: Settings, log: Any) -> None:
    if settings.token_file is None:
        return
    mode = settings.token_file.stat().st_mode
    if mode & 0o077:
        log.warning("token file is open to others", file=str(settings.token_file), remedy="chmod 600 %s" % settings.token_file)
