"""
The daemon's loop: lead, cycle, carry out what people approved, sleep a little less or more than a cycle.

A cycle that breaks off is logged and counted, and the next one starts from the store; the loop itself ends only when asked to.
"""

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from reaper import log
from reaper.decide.facts import MOST_AHEAD
from reaper.errors import ReaperError, UsageError
from reaper.metrics import FleetSummary, Metrics, NearReap, Starved, Unused
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.mark import Stage
from reaper.model.plan import Approval
from reaper.model.policy import Configuration, Mode
from reaper.model.signal import State
from reaper.ports import Clock, Lease, Store
from reaper.service import owed
from reaper.service.cycle import Cycle, CycleResult, running_in_scope
from reaper.service.execute import Withdrawn
from reaper.service.lead import Leader
from reaper.service.shelves import ShelfWatch
from reaper.service.starved import StarvedWatch, UnusedWatch
from reaper.service.undo import APPROVAL_PREFIX, find_stop
from reaper.service.watch import Watch

_log = log.get(__name__)

APPROVAL_HOLDS_FOR = timedelta(minutes=15)
"""An approval is for what the person saw; one that waited for a leader longer than this is asked for again."""


class ConfigurationSource(Protocol):
    """The newest good configuration, and why a newer one is refused (None: it is the newest)."""

    def current(self) -> tuple[Configuration, str | None]: ...


class Stop(Protocol):
    """What ends the loop: a threading.Event, or something that can also end one wait early."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(slots=True)
class Daemon:
    """``ceiling``: what this process may do at most, whatever the configuration says later. ``seen``: called after each cycle."""

    store: Store
    watch: Watch
    cycle: Cycle
    leader: Leader
    clock: Clock
    configuration: ConfigurationSource
    metrics: Metrics
    ceiling: Mode
    seen: Callable[[CycleResult], None] | None = None
    shelves: ShelfWatch | None = None
    cycled_at: datetime | None = None
    leading: bool = False
    _starved: StarvedWatch = field(default_factory=StarvedWatch)
    _unused: UnusedWatch = field(default_factory=UnusedWatch)

    @property
    def ready(self) -> bool:
        """After the first cycle, even if places failed; a process that waits for the lease is ready as well."""
        return self.cycled_at is not None

    def run(self, stop: Stop) -> None:
        """Until ``stop`` is set; at most one cycle longer."""
        self.watch.rebuild(self.store, self.clock.now())
        # The history of a fleet is old and stays: looking through it at every collection costs a sixth of a cycle.
        gc.collect()
        gc.freeze()
        while not stop.is_set():
            configuration, refused = self.configuration.current()
            self.once(self._bounded(configuration), refused)
            # Not in step with the agents: a cycle that always comes just before their report would never take a last look.
            stop.wait(configuration.cycle.total_seconds() * random.uniform(0.85, 1.05))
        self.leader.release()

    def bounded(self) -> Configuration:
        """The configuration in force, under this process's ceiling."""
        return self._bounded(self.configuration.current()[0])

    def _bounded(self, configuration: Configuration) -> Configuration:
        if self.ceiling is Mode.OBSERVE and configuration.mode is not Mode.OBSERVE:
            return replace(configuration, mode=Mode.OBSERVE)
        return configuration

    def once(self, configuration: Configuration, refused: str | None) -> CycleResult | None:
        """One cycle if we lead. Errors end the cycle, not the loop; who only watches (metrics, ``seen``) ends neither."""
        try:
            lease = self.leader.renew()
            self.leading = lease is not None
            self._aside("leading", lambda: self.metrics.leading(self.leading))
            self._aside("configuration", lambda: self.metrics.configuration_refused(refused is not None))
            if lease is None:
                self._aside("fleet", self.metrics.fleet_unknown)
                self._aside("brake", lambda: self.metrics.kill_switch(self.cycle.brake() is not None))
                self.cycled_at = self.cycled_at or self.clock.now()
                return None
            result = self.cycle.run(configuration, lease, refused)
            self._approved(configuration, lease, refused)
        except ReaperError as error:
            self._aside("cycle", self.metrics.cycle_failed)
            _log.error("cycle broke off", because=str(error), error=type(error).__name__)
            return None
        except Exception:  # noqa: BLE001 - a bug must not leave machines unwatched; it is counted, logged whole, and the next cycle starts anew
            self._aside("cycle", self.metrics.cycle_failed)
            _log.exception("cycle broke off")
            return None
        self.cycled_at = result.at
        self._aside("measure", lambda: self._measure(result))
        if self.shelves is not None:
            self._aside("disks", self.shelves.step)
        if self.seen is not None:
            seen = self.seen
            self._aside("seen", lambda: seen(result))
        return result

    def _aside(self, what: str, tell: Callable[[], object]) -> None:
        try:
            tell()
        except ReaperError as error:  # the store is locked, say: a cycle that is told late or not at all
            _log.warning("not told", what=what, because=str(error))
        except Exception:  # noqa: BLE001 - telling of a cycle must not end the watching
            _log.exception("telling failed", what=what)

    def _approved(self, configuration: Configuration, lease: Lease, refused: str | None) -> None:
        """What people filed with `apply` and `undo` while we lead, through the same gates. Each is tried once."""
        for approval in self.store.approvals():
            try:
                self._carry_out(approval, configuration, lease, refused)
            except (Withdrawn, ReaperError) as why:
                _log.warning("approval not carried out", approval=approval.id, who=approval.who, because=str(why))
                entry = AuditEntry(self.clock.now(), AuditKind.WITHHELD, approval.who, str(why), evidence={"approval": approval.id, "of": approval.plan})
                self.store.append_audit(entry)
            except Exception:  # noqa: BLE001 - one that trips over a bug of ours must not stand before the others in every cycle
                _log.exception("approval failed", approval=approval.id, who=approval.who)
            self.store.finish_approval(approval.id, self.clock.now())

    def _carry_out(self, approval: Approval, configuration: Configuration, lease: Lease, refused: str | None) -> None:
        age = self.clock.now() - approval.at
        if age > APPROVAL_HOLDS_FOR:
            raise Withdrawn("approval", f"it was filed over {APPROVAL_HOLDS_FOR} ago; approve it again")
        if age < -MOST_AHEAD:
            raise Withdrawn("approval", "it was filed in the future: a clock was set back; approve it again")
        gathering = self.cycle.gather(configuration)
        running = running_in_scope(gathering, configuration)
        if approval.plan.startswith(APPROVAL_PREFIX):
            stopped = find_stop(self.store, approval.plan.removeprefix(APPROVAL_PREFIX))
            self.cycle.executor.start_again(stopped, gathering, lease, running, approval.who)
            return
        if refused is not None:
            raise Withdrawn("configuration", f"the newest configuration is refused: {refused}")
        plan = self.store.plan(approval.plan)
        if plan is None:
            raise UsageError(f"there is no plan {approval.plan} any more")
        self.cycle.apply(plan, gathering, lease, running, approval.who)

    def _measure(self, result: CycleResult) -> None:
        now = self.clock.now()
        machines: dict[tuple[str, str], int] = {}
        near: list[NearReap] = []
        starved = {row.decision.resource: row for row in result.rows if row.waste is not None}
        self._starved.step({id: row.waste for id, row in starved.items() if row.waste is not None}, now)
        self._unused.step({row.decision.resource: row.idle_gpus for row in result.rows if row.idle_gpus is not None}, now)
        ages: list[float] = []
        for row in result.rows:
            key = (row.decision.state.value, row.decision.verdict.value)
            machines[key] = machines.get(key, 0) + 1
            mark, policy = row.candidate.mark, row.candidate.policy
            if mark is not None and policy is not None and mark.stage is Stage.WARNED:
                left = max((policy.warn_for(mark.cause).wait - mark.waited).total_seconds(), 0.0)
                mode = policy.mode if result.mode is Mode.ENFORCE else Mode.OBSERVE
                near.append(NearReap(str(mark.resource), policy.name, mode.value, left))
            newest = self.watch.newest(row.decision.resource)
            if newest is not None and row.decision.state is not State.NO_AGENT:
                ages.append(max((now - newest.ended_at).total_seconds(), 0.0))
        blocked = {machine for jump in result.jumps if now < jump.until for machine in jump.machines}
        owing = owed.read(self.store)
        fleet = FleetSummary(
            machines=machines, near=near, report_ages=ages, budget_left=result.budget_left,
            breaker_open=bool(blocked), breaker_blocked=len(blocked),
            owed_starts=(len(owing), sum(one.late_told for one in owing.values())),
            unused=[Unused(row.decision.policy or "", row.idle_gpus.idle, row.idle_gpus.usd_per_day) for row in result.rows if row.idle_gpus is not None],
            starved=[Starved(row.decision.policy or "", row.waste.usd_per_day) for row in starved.values() if row.waste is not None],
        )  # fmt: skip
        for _ in result.lost:
            self.metrics.work_lost()
        self.metrics.kill_switch(result.brake is not None)
        self.metrics.cycle_finished(seconds=result.took.total_seconds(), at=result.at, fleet=fleet)
        for attempt in (*result.settled, *(r.attempt for r in result.results if r.attempt is not None)):
            if attempt.outcome is not None:
                self.metrics.action_ended(attempt.action.value, attempt.outcome.value)
