"""
Values for tests, naming only what matters. Unchanged, every one is of a machine that is perfectly idle and may be stopped:
one GPU, quiet for four hours under a policy of two, listed and reported a moment ago, nothing in the way.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reaper.decide.budget import Ask
from reaper.decide.facts import Facts, Member, Shield
from reaper.decide.planner import Candidate
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action, Decision, Finding, FindingKind, Verdict
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle, Protections
from reaper.model.mark import Mark, Stage
from reaper.model.plan import Attempt, Debit, Outcome
from reaper.model.policy import Budgets, Configuration, CountBudget, Mode, Policy, Scope, Selector
from reaper.model.resource import Place, ResourceId
from reaper.model.signal import GpuWindow, LoaderWindow, LocalDisk, Observation, Quiet, State, Totals
from reaper.model.snooze import Snooze

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
IDLE_FOR = 2 * HOUR
HELD_FOR = 10 * HOUR


def resource(native: str = "i-01", account: str = "111122223333", place: str = "eu-west-1") -> ResourceId:
    return ResourceId("aws", account, place, "instance", native)


HERE = Place("aws", "111122223333", "eu-west-1")


def instance(native: str = "i-01", **changes: Any) -> Instance:
    """An on-demand machine with one GPU, running for a day."""
    known: dict[str, Any] = {
        "id": resource(native), "type": "g5.xlarge", "state": InstanceState.RUNNING, "launched_at": NOW - DAY, "gpus": 1,
        "gpu_model": "A10G", "lifecycle": Lifecycle.ON_DEMAND, "local_store": False, "volumes": ("vol-1",), "interfaces": ("eni-1",),
    }  # fmt: skip
    return Instance(**(known | changes))


def gpu(uuid: str = "GPU-0", **changes: Any) -> GpuWindow:
    """Quiet, covered, and nothing on it."""
    known: dict[str, Any] = {
        "model": "NVIDIA A10G", "peak": 0.0, "mean": 0.0, "covered_s": 60.0, "mem_used_bytes": 0, "mem_total_bytes": 24 << 30,
        "power_w": 20.0, "energy_j": 1e6, "processes": 0,
    }  # fmt: skip
    return GpuWindow(uuid, **(known | changes))


def loader(id: str = "python", wait: float | None = 0.0, cpu_cores: float | None = 0.0, **changes: Any) -> LoaderWindow:
    return LoaderWindow(id, wait, cpu_cores, **changes)


def disk(device: str = "nvme1n1", **changes: Any) -> LocalDisk:
    """Mounted whole, empty, and not written to for a day."""
    known: dict[str, Any] = {"use": "mounted", "mount": "/data", "used": 0.01, "written_age_s": 86_400.0}
    return LocalDisk(device, **(known | changes))


def observation(ended_ago: timedelta = 20 * SECOND, **changes: Any) -> Observation:
    """A quiet window of one minute that ended ``ended_ago`` before NOW. ``ended_at`` moves its start with it."""
    ended_at = changes.get("ended_at", NOW - ended_ago)
    window_s = changes.get("window_s", 60.0)
    up_s = 86_400.0 + (ended_at - NOW).total_seconds()
    known: dict[str, Any] = {
        "resource": resource(), "boot_id": "boot-1", "seq": round(up_s * 1000), "up_s": up_s, "window_s": window_s,
        "started_at": ended_at - timedelta(seconds=window_s), "ended_at": ended_at, "received_at": ended_at, "verified": True,
        "sampler": "ok", "agent": "1.0", "expected_gpus": 1, "gpus": (gpu(),), "loaders": (), "totals": Totals(),
        "cpu_ratio": 0.01, "cpus": 4, "disk_bytes_per_s": 0.0, "net_bytes_per_s": 0.0, "orchestrators": (),
    }  # fmt: skip
    return Observation(**(known | changes))


def quiet(quiet_for: timedelta = 4 * HOUR, until: datetime = NOW - 20 * SECOND, unheld_for: timedelta | None = None, **changes: Any) -> Quiet:
    """Fully covered over both terms. ``unheld_for``: as long as it is quiet, unless given."""
    unheld = quiet_for if unheld_for is None else unheld_for
    known: dict[str, Any] = {
        "since": until - quiet_for, "unheld_since": until - unheld, "until": until, "began_at": until - DAY, "period": MINUTE, "devices": 1,
        "covered": {IDLE_FOR: (1.0, "gpu GPU-0"), HELD_FOR: (1.0, "gpu GPU-0")}, "host_covered": {IDLE_FOR: (1.0, "cpu"), HELD_FOR: (1.0, "cpu")},
    }  # fmt: skip
    return Quiet(**(known | changes))


def policy(name: str = "training", **changes: Any) -> Policy:
    known: dict[str, Any] = {"when": Selector(), "mode": Mode.ENFORCE, "digest": f"{name}-1"}
    return Policy(name, **(known | changes))


def configuration(*policies: Policy, **changes: Any) -> Configuration:
    """Enforcing, with a scope that holds everything and may stop and start, and budgets that do not bind."""
    known: dict[str, Any] = {
        "name": "ml-platform", "mode": Mode.ENFORCE, "policies": policies or (policy(),), "digest": "configuration-1",
        "scope": Scope(verbs=("stop", "start"), given=True), "budgets": Budgets(stops=CountBudget(), starts=CountBudget()),
    }  # fmt: skip
    return Configuration(**(known | changes))


def facts(**changes: Any) -> Facts:
    """Of a perfectly idle machine."""
    known: dict[str, Any] = {
        "instance": instance(), "listed_at": NOW - 10 * SECOND, "stale_after": 3 * MINUTE, "policies": (policy(),),
        "running_since": NOW - DAY, "quiet": quiet(), "newest": observation(), "agent_seen": True,
        "protections": Protections(stop_protected=False),
    }  # fmt: skip
    return Facts(**(known | changes))


def held_facts(**changes: Any) -> Facts:
    """Of a machine with a loaded model that nothing has used for twelve hours."""
    newest = observation(gpus=(gpu(processes=1, mem_used_bytes=8 << 30),), loaders=(loader(),))
    return facts(**({"newest": newest, "quiet": quiet(12 * HOUR, unheld_for=timedelta(0))} | changes))


def local_facts(*disks: LocalDisk, **changes: Any) -> Facts:
    """Of an idle machine with one local disk, which is empty, under a policy that lets empty ones go."""
    known: dict[str, Any] = {
        "instance": instance(local_store=True, local_disks=1), "policies": (policy(local_nvme="if-empty", local_scratch=("/opt/dlami/nvme",)),),
        "newest": observation(disks=disks or (disk(),)),
    }  # fmt: skip
    return facts(**(known | changes))


def member(native: str = "i-02", state: State = State.IDLE, quiet_for: timedelta | None = 4 * HOUR) -> Member:
    return Member(resource(native), native, state, NOW - quiet_for if quiet_for is not None else None)


def shield(name: str = "protect.run", until: datetime | None = None) -> Shield:
    return Shield(name, "a three-week run", until)


def snooze(until: datetime = NOW + HOUR, who: str = "ada", of: ResourceId | None = None) -> Snooze:
    return Snooze(f"s-{who}", of or resource(), until, who, "demo", NOW - HOUR)


def finding(rule: str = "gpu-idle", kind: FindingKind = FindingKind.NOMINATE, action: Action | None = Action.STOP, **changes: Any) -> Finding:
    return Finding(rule, kind, f"{rule} says so", action=action if kind is FindingKind.NOMINATE else None, **changes)


def decision(verdict: Verdict = Verdict.ACT, native: str = "i-01", **changes: Any) -> Decision:
    """One to stop an idle machine, as the engine would have made it."""
    known: dict[str, Any] = {"state": State.IDLE, "action": Action.STOP, "cause": "gpu-idle", "policy": "training", "because": "idle for 4h"}
    return Decision(resource(native), verdict, **(known | changes))


def mark(stage: Stage = Stage.DUE, native: str = "i-01", **changes: Any) -> Mark:
    """Nominated two hours ago; warned and due as far as its stage says, due five minutes ago."""
    known: dict[str, Any] = {
        "resource": resource(native), "action": Action.STOP, "cause": "gpu-idle", "policy": "training", "policy_digest": "training-1",
        "stage": stage, "nominated_at": NOW - 2 * HOUR, "counted_at": NOW - MINUTE,
    }  # fmt: skip
    if stage is not Stage.NOMINATED:
        known |= {"warned_at": NOW - 2 * HOUR, "warned_via": "log"}
    if stage is Stage.DUE:
        known |= {"due_at": NOW - 5 * MINUTE, "waited": HOUR}
    return Mark(**(known | changes))


def candidate(native: str = "i-01", gang: str | None = None, due_ago: timedelta = 5 * MINUTE, **changes: Any) -> Candidate:
    """One that is due and had its last look."""
    known: dict[str, Any] = {
        "instance": instance(native), "decision": decision(native=native), "policy": policy(), "mark": mark(native=native, due_at=NOW - due_ago), "gang": gang,
    }  # fmt: skip
    return Candidate(**(known | changes))


def debit(ago: timedelta = MINUTE, usd: float | None = None, native: str = "i-99", at: datetime | None = None) -> Debit:
    return Debit(at or NOW - ago, resource(native), Action.STOP, usd)


def ask(count: int = 1, usd: float | None = None) -> Ask:
    return Ask(count, usd)


def attempt(outcome: Outcome | None = Outcome.DONE, native: str = "i-01", ended_ago: timedelta = MINUTE, **changes: Any) -> Attempt:
    """A stop of ours that was carried out, with the machine as it was left."""
    before = instance(native)
    known: dict[str, Any] = {
        "id": f"a-{native}", "resource": resource(native), "action": Action.STOP, "cause": "gpu-idle", "policy": "training", "because": "idle for 4h",
        "intent_at": NOW - ended_ago - SECOND, "before": before, "outcome": outcome, "outcome_at": NOW - ended_ago if outcome is not None else None,
        "after": stopped(before) if outcome is Outcome.DONE else None,
    }  # fmt: skip
    return Attempt(**(known | changes))


def stopped(machine: Instance | None = None, **changes: Any) -> Instance:
    """The same machine as the cloud shows it after our stop."""
    known: dict[str, Any] = {"state": InstanceState.STOPPED, "changed_at": NOW - MINUTE}
    return replace(machine or instance(), **(known | changes))


def entry(of: Attempt, kind: AuditKind = AuditKind.OUTCOME) -> AuditEntry:
    """The line of the record that speaks of an attempt."""
    return AuditEntry(of.outcome_at or of.intent_at, kind, of.actor, of.because, of.resource, of.action.value, of.id)
