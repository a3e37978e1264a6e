"""
A small world for stories: the real cycle, store and decisions over a fake cloud, a manual clock and scripted lives.

Every minute each living agent reports the minute that passed; a few seconds later the daemon runs a cycle.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from reaper.model.decision import Verdict
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from reaper.model.mark import Mark
from reaper.model.policy import Budgets, Configuration, CountBudget, IdleTerms, Mode, Policy, Scope, Selector, Warn
from reaper.model.resource import ResourceId
from reaper.model.signal import GpuWindow, LoaderWindow, Observation, Voice
from reaper.ports import Store
from reaper.service.announce import Announcer
from reaper.service.board import Board
from reaper.service.brakes import FileBrake
from reaper.service.cycle import Cycle, CycleResult
from reaper.service.lead import Leader
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.fakes.clock import ManualClock
from tests.fakes.cloud import FakeCloud
from tests.fakes.notifier import FakeNotifier

MINUTE = timedelta(minutes=1)
ACCOUNT, REGION = "111122223333", "eu-west-1"


@dataclass(slots=True)
class Life:
    """What a machine does, minute by minute, and how its agent is. ``load``: GPU peak per device, or a function of now."""

    id: ResourceId
    load: float | Callable[[datetime], float] = 0.0
    gpus: int = 1
    held: bool = False
    wait: float | None = 0.0
    agent: bool = True
    verified: bool = True
    cpu: float | None = 0.01
    booted_at: datetime | None = None
    boot: int = 1
    hook: str | None = None
    changes: dict[str, object] = field(default_factory=dict)

    def window(self, now: datetime, span: timedelta) -> Observation:
        """The window that ends ``now``."""
        load = self.load(now) if callable(self.load) else self.load
        up = (now - (self.booted_at or now)).total_seconds() + 3600.0
        used = 8 * 2**30 if self.held else 0
        seen = Observation(
            resource=self.id, boot_id=f"{self.id.native}-{self.boot}", seq=int(up * 1000), up_s=up, window_s=span.total_seconds(),
            started_at=now - span, ended_at=now, received_at=now, verified=self.verified, sampler="ok", expected_gpus=self.gpus,
            gpus=tuple(
                GpuWindow(f"GPU-{self.id.native}-{i}", model="Tesla V100-SXM2-16GB", peak=load, mean=load, covered_s=span.total_seconds(),
                          mem_used_bytes=used, mem_total_bytes=16 * 2**30, processes=1 if self.held or load else 0)
                for i in range(self.gpus)
            ),
            loaders=(LoaderWindow("tree-1", wait=self.wait, cpu_cores=0.01),) if self.held or load else (),
            cpu_ratio=self.cpu, cpus=8, disk_bytes_per_s=0.0, net_bytes_per_s=0.0, orchestrators=(),
            hook_installed=self.hook is not None, hook_outcome=self.hook,
        )  # fmt: skip
        return replace(seen, **self.changes)  # type: ignore[arg-type]


def machine(native: str, **fields: object) -> Instance:
    """A plain on-demand machine of the policy "research", old enough for everything."""
    base = Instance(
        id=ResourceId("aws", ACCOUNT, REGION, "instance", native), type="p3.2xlarge", state=InstanceState.RUNNING, name=native.removeprefix("i-"),
        tags={"team": "ml", "owner": "ada"}, launched_at=datetime.fromisoformat("2026-02-01T00:00:00+00:00"), gpus=1, gpu_model="V100",
        lifecycle=Lifecycle.ON_DEMAND, local_store=False, volumes=("vol-" + native,), interfaces=("eni-" + native,),
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


def policy(**fields: object) -> Policy:
    base = Policy(
        name="research", when=Selector(tags={"team": ("ml",)}), mode=Mode.ENFORCE, idle=IdleTerms(timedelta(minutes=30), 0.05, timedelta(hours=2)),
        warn=Warn(timedelta(minutes=10)), min_age=timedelta(minutes=10), digest="d1",
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


def configuration(*policies: Policy, **fields: object) -> Configuration:
    base = Configuration(
        name="ml", mode=Mode.ENFORCE, policies=policies or (policy(),), gang_same=("tag:job-group",),
        scope=Scope(Selector(tags={"team": ("ml",)}), ("stop", "start"), given=True),
        budgets=Budgets(stops=CountBudget(), breaker=None), digest="c1",
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


class World:
    """``state``: the folder of the kill switch."""

    def __init__(self, state: Path, config: Configuration | None = None) -> None:
        self.state = state
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock)
        self.channel = FakeNotifier("log")
        self.lives: dict[str, Life] = {}
        self.config = config or configuration()
        self.refused: str | None = None
        self.daemon_up = True
        self.results: list[CycleResult] = []
        self.store: Store = open_store(":memory:")  # a folder's worth of safety costs a test most of its time
        self._start()

    def _start(self) -> None:
        self.watch = Watch(self.store)
        self.watch.rebuild(self.store, self.clock.now())
        self.board = Board()
        self.cycle = Cycle(
            self.store, self.watch, {"aws": self.cloud}, Announcer({"log": self.channel}), self.board, self.clock, FileBrake(self.state)
        )
        self.leader = Leader(self.store, self.clock, timedelta(minutes=3))

    def restart(self) -> None:
        """The daemon dies without a word and is started again over the same store (whose own tests reopen real files)."""
        self._start()

    def add(self, native: str, life: Life | None = None, **fields: object) -> Life:
        made = machine(native, **fields)
        self.cloud.put(made)
        life = replace(life, id=made.id) if life is not None else Life(made.id)
        life.gpus = made.gpus or life.gpus
        life.booted_at = life.booted_at or self.clock.now() - timedelta(days=1)
        self.lives[native] = life
        return life

    def report(self, life: Life, span: timedelta = MINUTE) -> None:
        seen = life.window(self.clock.now(), span)
        voice = self.store.voice(life.id) or Voice(life.id, seen.boot_id, self.clock.now(), self.clock.now(), self.clock.now())
        voice = replace(voice, boot_id=seen.boot_id, last_at=self.clock.now())
        self.store.add_observation(seen, voice)
        self.watch.add(seen, voice)

    def tick(self) -> CycleResult | None:
        """One minute of everybody's life, and a cycle five seconds later."""
        self.clock.advance(MINUTE - timedelta(seconds=5))
        for life in self.lives.values():
            up = life.id in self.cloud.machines and self.cloud.machines[life.id].state is InstanceState.RUNNING
            if up and life.agent:
                self.report(life)
        self.clock.advance(timedelta(seconds=5))
        if not self.daemon_up:
            return None
        lease = self.leader.renew()
        if lease is None:
            return None
        result = self.cycle.run(self.config, lease, self.refused)
        self.results.append(result)
        return result

    def run(self, minutes: int, until: Callable[[], bool] | None = None) -> int:
        """Minutes that passed until ``until`` was so, or all of them."""
        for minute in range(minutes):
            self.tick()
            if until is not None and until():
                return minute + 1
        return minutes

    def state_of(self, native: str) -> InstanceState:
        return self.cloud.machines[self.lives[native].id].state

    def stopped(self, native: str) -> bool:
        return self.state_of(native) in (InstanceState.STOPPING, InstanceState.STOPPED)

    def mark(self, native: str) -> Mark | None:
        return next((m for (r, _), m in self.store.marks().items() if r == self.lives[native].id), None)

    def verdict(self, native: str) -> Verdict:
        return next(row.decision.verdict for row in self.results[-1].rows if row.decision.resource == self.lives[native].id)

    def why(self, native: str) -> str:
        return next(row.decision.because for row in self.results[-1].rows if row.decision.resource == self.lives[native].id)

    def story(self, native: str) -> list[str]:
        return [entry.kind.value for entry in self.store.audit(resource=self.lives[native].id)]
