"""
Planted faults: single edits of the reaper's own code, each of which the simulator has to find.

An edit swaps the code of one function for its own text with one piece changed, in the worker's process only. One that no
longer fits the text is an error, never a pass. Where two lines guard against the same thing, one of them alone changes
nothing that could be seen; such a fault edits both, and says so in its name.
"""

import ast
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


class DoesNotFit(Exception):
    """The code is no longer what the fault was written for: bring the table up to date."""


@dataclass(frozen=True, slots=True)
class Edit:
    """``where``: module:function or module:Class.method. ``old`` must be there exactly once; None: the function answers None."""

    where: str
    old: str | None = None
    new: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """``focus``: which lives and misfortunes to draw more often; the generator is the usual one."""

    name: str
    edits: tuple[Edit, ...]
    focus: frozenset[str]
    seeds: int = 12


def plant(fault: Fault) -> Callable[[], None]:
    """Makes the edits in this process; call what comes back to undo them. Raises DoesNotFit, and then nothing is changed."""
    by_function: dict[FunctionType, list[Edit]] = {}
    for edit in fault.edits:
        by_function.setdefault(_function(edit.where), []).append(edit)
    swaps = [(function, _edited(function, edits)) for function, edits in by_function.items()]
    before = [(function, function.__code__) for function, _ in swaps]
    modules = {edit.where.partition(":")[0] for edit in fault.edits}

    def become(codes: list[tuple[FunctionType, Any]]) -> None:
        for function, code in codes:
            function.__code__ = code
        for kept in (value for module in modules for value in vars(importlib.import_module(module)).values()):
            if hasattr(kept, "cache_clear"):  # what was worked out by the other code
                kept.cache_clear()

    become(swaps)
    return lambda: become(before)


@contextmanager
def planted(fault: Fault | None) -> Iterator[None]:
    undo = plant(fault) if fault is not None else lambda: None
    try:
        yield
    finally:
        undo()


def _function(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    try:
        found = functools.reduce(lambda owner, name: inspect.getattr_static(owner, name), path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise DoesNotFit(f"{where} is not there: {error}") from error
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise DoesNotFit(f"{where} is no function")
    return found


def _edited(function: FunctionType, edits: list[Edit]) -> Any:
    where = edits[0].where
    if function.__code__.co_freevars:
        raise DoesNotFit(f"{where} is a closure")
    text = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        if edit.old is not None:
            if text.count(edit.old) != 1:
                raise DoesNotFit(f"{where} holds {edit.old!r} {text.count(edit.old)} times, not once")
            text = text.replace(edit.old, edit.new)
    tree = ast.parse(text)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    if any(edit.old is None for edit in edits):
        definition.body = [ast.Return(ast.Constant(None))]
    definition.decorator_list = []
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), f"<planted in {where}>", "exec"), function.__globals__, made)
    return made[definition.name].__code__


def _fault(name: str, focus: str, *edits: Edit, seeds: int = 12) -> Fault:
    return Fault(name, edits, frozenset(focus.split()), seeds)


def _guard(name: str, module: str, function: str, focus: str, seeds: int = 12) -> Fault:
    return _fault(f"guard {name} off", focus, Edit(f"reaper.decide.guards.{module}:{function}"), seeds=seeds)


_EXECUTE, _LIFE, _WINDOWS, _LOOK = "reaper.service.execute:Executor", "reaper.decide.lifecycle", "reaper.decide.windows", "reaper.decide.last_look:last_look"

_RECIPES = "reaper.service.recipes"

_SCHEDULE, _CLOSING, _MORNINGS = "reaper.decide.schedule", "reaper.decide.closing", "reaper.service.mornings"

FAULTS: tuple[Fault, ...] = (
    _guard("ineligible", "eligible", "ineligible", "calm small out-of-scope forgotten"),
    _guard("claimed-by-another", "claimed", "claimed_by_another", "calm small claimed forgotten"),
    _guard("protected", "protected", "protected", "calm small protected forgotten"),
    _guard("two-policies", "policies", "two_policies", "calm small two-policies forgotten"),
    _guard("blind", "blind", "blind", "storm small ail forgotten"),
    _guard("starved", "starved", "starved", "storm small blind-late no-wait returning"),
    _guard("in-use", "in_use", "in_use", "storm small blind-late no-cpu no-disk forgotten"),
    _guard("gang", "gang", "gang", "storm small gang region-at-first region"),
    _guard("orchestrator", "orchestrator", "orchestrator", "calm small orchestrator forgotten"),
    _guard("snoozed", "snoozed", "snoozed", "calm small snooze forgotten"),
    _guard("in-transition", "transition", "in_transition", "storm small ignored forgotten"),
    _guard("too-young", "young", "too_young", "calm small young undo evaluator"),
    _guard("managed-member", "owned", "managed_member", "calm small managed forgotten"),
    _guard("local-data", "local_data", "local_data", "calm small local-disk forgotten"),
    _guard("spot", "lifecycle_kind", "spot", "calm small spot forgotten"),
    _guard("scarce", "scarce", "scarce", "calm small scarce forgotten"),
    _guard("stop-protected", "stop_protected", "stop_protected", "calm small stop-protected forgotten"),
    _fault("decided once and not again", "storm small crawl late-snooze forgotten", Edit(
        f"{_EXECUTE}._stands", "decision = decide(facts, now)",
        "decision = replace(decide(facts, now), verdict=Verdict.ACT, action=planned.action, cause=planned.cause, findings=())")),
    _fault("last look off", "calm small forgotten", Edit(_LOOK)),
    _fault("last look may have begun before it was due", "calm small forgotten", Edit(_LOOK, "seen.started_at < mark.due_at", "False")),
    _fault("last look may be old", "calm small forgotten", Edit(_LOOK, "not observe and now - seen.ended_at > quiet.period", "False")),
    _fault("pre-stop hook not asked", "calm small hook forgotten", Edit(_LOOK, "seen.hook_installed and seen.hook_outcome != HOOK_OK", "False")),
    _fault("lease not checked with the intent", "storm small two-daemons usurped crawl forgotten", Edit(
        "reaper.store.acting:Acting.begin_attempt", "held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder)", "held is None")),
    _fault("lost calls are made again", "storm small lost forgotten", Edit(
        f"{_EXECUTE}._call", "        verb(attempt.resource)\n",
        "        try:\n            verb(attempt.resource)\n        except (AnswerLost, Unreachable):\n            verb(attempt.resource)\n")),
    _fault("marks kept over a change of mode", "storm small starts-observing edit forgotten", Edit(
        "reaper.service.continuity:Continuity.broken", "mode is not None and mode != configuration.mode.value", "False")),
    _fault("marks kept over a pause of the daemon", "storm small crash suspend-daemon forgotten", Edit(
        "reaper.service.continuity:Continuity.broken", "gap > LONGEST_GAP", "False")),
    _fault("marks kept over an edit of their policy", "storm small edit forgotten", Edit(
        f"{_LIFE}:cleared_by", "policy.digest != mark.policy_digest", "False")),
    _fault("marks kept over a snooze", "calm small snooze forgotten", Edit(f"{_LIFE}:cleared_by", "finding.rule in CLEARING_HOLDS", "False")),
    _fault("warning not awaited", "calm small forgotten", Edit(f"{_LIFE}:_count", "mark.waited >= terms.wait", "True")),
    _fault("quiet hours counted", "calm small quiet forgotten", Edit(
        f"{_LIFE}:_count", "in_quiet = quiet is not None and (quiet.contains(now) or quiet.contains(mark.counted_at))", "in_quiet = False")),
    _fault("the wait never ends", "calm small forgotten", Edit(f"{_LIFE}:_count", "mark.waited >= terms.wait", "False")),
    _fault("a warning that nobody took counts", "storm small channel forgotten", Edit(
        "reaper.service.announce:Announcer.send", "return first", "return first or (via[0] if via else None)")),
    _fault("holes filled with idle", "storm small ail evaluator", Edit(
        f"{_WINDOWS}:IdleClock._opens_hole", "return True\n    # The boot", "return False\n    # The boot")),
    _fault("coverage not asked for", "storm small ail keeper", Edit("reaper.decide.guards.blind:_coverage")),
    _fault("mean taken for peak", "calm small server", Edit(f"{_WINDOWS}:IdleClock._push", "_up_to(gpu.work, 0.001)", "_up_to(gpu.mean or 0.0, 0.001)")),
    _fault("CPU left out of the idle clock", "calm small preparer", Edit(f"{_WINDOWS}:_host_values", "Signal.CPU: seen.cpu_ratio,", "Signal.CPU: 0.0,")),
    _fault("data wait left out of the idle clock", "calm small returning trainer", Edit(
        f"{_WINDOWS}:_host_values", "Signal.WAIT: max((waited for tree in trees if (waited := tree.waited) is not None), default=None),", "Signal.WAIT: 0.0,")),
    _fault("what is not known is zero", "storm small blind-late nvml-failed keeper",
        Edit("reaper.service.ingest:_gpu", "peak=gpu.peak_ratio,", "peak=gpu.peak_ratio or 0.0,"),
        Edit("reaper.service.ingest:_gpu", "covered_s=gpu.covered_s,", "covered_s=gpu.covered_s or 60.0,")),
    _fault("held machines keep the short term", "calm small keeper", Edit(
        "reaper.decide.causes.held:held", "quiet.quiet_for < policy.idle.held_for", "quiet.quiet_for < policy.idle.idle_for")),
    _fault("a living launcher does not count (both checks)", "calm small sweep job-ended", Edit(
        "reaper.model.signal:Job.over", " and self.launcher is None and self.launcher_known is True", "")),
    _fault("unverified counts as idle", "calm small shared-token forgotten", Edit(
        "reaper.service.ingest:Ingest._judge_and_keep", "replace(seen, verified=heard.verified)", "replace(seen, verified=True)")),
    _fault("clones believed", "storm small clone forgotten", Edit("reaper.service.voices:distrusted")),
    _fault("the first agent may speak for all", "storm small forge-silent evaluator", Edit(
        "reaper.service.ingest:Ingest._accept", "token.resource is not None and token.resource != resource", "False")),
    _fault("budget off by one", "calm small budget forgotten", Edit(
        "reaper.decide.budget:refusal", "used + more <= limit.most", "used + more <= limit.most + 1")),
    _fault("dollars not counted", "calm small usd budget forgotten", Edit("reaper.decide.budget:refusal", "ask.usd_per_hour is None", "True")),
    _fault("share rounded up", "calm small share budget forgotten", Edit(
        "reaper.decide.budget:limits", "math.floor(budget.share_per_hour * running)", "1 + math.ceil(budget.share_per_hour * running)")),
    _fault("breaker never opens", "storm small wedge bare", Edit("reaper.decide.breaker:jump")),
    _fault("gang split (guard, plan and executor)", "calm small gang", Edit("reaper.decide.guards.gang:gang"),
        Edit("reaper.decide.planner:_withhold", "waiting = [c for c in group if not c.ready]", "waiting = [c for c in ready if not c.ready]"),
        Edit(f"{_EXECUTE}._stands", "if apart:", "if not all(apart):")),
    _fault("protection vanished is forgotten", "storm small keep-until protect forgotten", Edit(
        "reaper.service.shields:remember", "until = vanished + GRACE", "until = vanished")),
    _fault("a keep-until that cannot be read does not protect", "calm small keep-until forgotten", Edit(
        "reaper.service.shields:current", 'shields.append(Shield(name, "its value cannot be read as a time, so it protects"))', "pass")),
    _fault("a stranger cuts a snooze short", "calm small snooze forgotten",
        Edit("reaper.store.intentions:Intentions.snoozes", "select(table.c.id, table.c.value).where(table.c.until > micros(active_at))", "select(table.c.id, table.c.value)"),
        Edit("reaper.store.intentions:Intentions.snoozes", "return tuple(_SNOOZES.decode(value, id) for id, value in rows)",
             "return tuple({s.resource: s for s in sorted((_SNOOZES.decode(value, id) for id, value in rows), key=lambda s: s.created_at)}.values())")),
    _fault("stale listing acted upon", "storm small stale late-tag forgotten", Edit(
        f"{_EXECUTE}._look", "gathering.replace_instance(fresh, at)", "pass")),
    _fault("call long after the fresh read", "storm small crawl forgotten", Edit(f"{_EXECUTE}._soon", "late > READ_TO_CALL", "False")),
    _fault("acts with a wrong clock", "storm small clock-late forgotten", Edit(f"{_EXECUTE}._in_time", "abs(skew) > timedelta(seconds=30)", "False")),
    _fault("kill switch ignored", "storm small brake forgotten", Edit("reaper.service.brakes:FileBrake.engaged")),
    _fault("refused configuration ignored", "storm small break forgotten", Edit(
        "reaper.service.cycle:Cycle._plan", "if refused is not None else None", "if False else None")),
    _fault("starts what others stopped or touched", "storm small undo touch evaluator", Edit("reaper.decide.undo:refuse_start")),
    _fault("starts what somebody has tagged since", "calm small undo touch evaluator", Edit("reaper.decide.undo:refuse_start", "foreign_tags(current) != foreign_tags(was)", "False")),
    _fault("starts twice (both checks)", "storm small undo evaluator", Edit("reaper.decide.undo:refuse_start"),
        Edit(f"{_EXECUTE}.start_again", "if any(attempt.resource == stopped.resource for attempt in self._store.attempts(open_only=True)):", "if False:")),
    _fault("outcome not written", "calm small forgotten", Edit(
        "reaper.service.settle:Settler.close", "self._store.end_attempt(closed, entry)", "pass")),
    _fault("intent not written", "calm small forgotten", Edit(
        f"{_EXECUTE}._act", "self._intend(attempt, gathering.configuration, lease, running, together)", "pass")),
    _fault("a bug in acting", "calm small forgotten", Edit(
        f"{_EXECUTE}._call", "verb = getattr(cloud, FIRST_VERB[attempt.action])", "verb = cloud.no_such_verb")),
    _fault("outcome not in the record", "calm small forgotten", Edit("reaper.store.acting:Acting.end_attempt", "self._record(connection, entry)", "pass")),
    _guard("reservation", "reserved", "reserved", "calm small reserved capacity-block forgotten"),
    _guard("restart-risk", "restart_risk", "restart_risk", "calm small bad-key forgotten"),
    _guard("termination-protected", "termination", "termination_protected", "calm small terminate end-protected forgotten"),
    _guard("cannot-hibernate", "hibernation", "cannot_hibernate", "calm small hibernate forgotten"),
    _fault("a group that only its own API tells is ignored", "calm small hidden-owner forgotten", Edit(
        "reaper.decide.guards.owned:managed_member", "protections.managed_by is not None", "False")),
    _fault("ends a machine before its copies are complete", "calm small terminate forgotten", Edit(
        f"{_RECIPES}:_verified", "one is None or one.state is not SnapshotState.COMPLETED", "one is None")),
    _fault("ends what somebody has tagged since", "calm small terminate late-touch forgotten", Edit(
        f"{_RECIPES}:_touched", "foreign_tags(fresh) != foreign_tags(attempt.before)", "False"), seeds=40),
    _fault("ends what its policy no longer wants ended", "calm small terminate late-touch forgotten", Edit(
        f"{_RECIPES}:Recipes._end", 'facts.policy.action != "terminate"', "False")),
    _fault("ends in spite of snoozes and protections", "calm small terminate late-touch forgotten", Edit(f"{_RECIPES}:Recipes._guarded")),
    _fault("copies a disk that has its copy", "calm small stop-and-snapshot forgotten", Edit(
        f"{_RECIPES}:Recipes._step", "_newest(snapshots, volume) is None", "True")),
    _fault("the kill switch does not bind later steps", "storm small terminate brake forgotten", Edit(
        f"{_RECIPES}:Recipes._permitted", "brake is not None", "False")),
    _fault("due before hours end (all three checks)", "calm small hours",
        Edit(f"{_CLOSING}:closing", "now >= now_is.until - hours.wait", "now >= now_is.until - 3 * hours.wait"),
        Edit(f"{_LIFE}:_count", " and (mark.not_before is None or now >= mark.not_before)", ""),
        Edit(_LOOK, "mark.not_before is not None and now < mark.not_before", "False")),
    _fault("holidays ignored", "calm small hours holiday", Edit(f"{_SCHEDULE}:_weekly", " and schedule.off_because(day) is None", "")),
    _fault("clocks that change taken for a fixed offset", "calm small hours", Edit(
        f"{_SCHEDULE}:moment_of", "place = ZoneInfo(zone)", "return (wall - _EPOCH.astimezone(ZoneInfo(zone)).utcoffset()).replace(tzinfo=UTC)")),
    _fault("who restarts in the night is stopped again", "calm small hours owl", Edit(
        f"{_CLOSING}:closing", "running_since is not None and running_since >= ended", "False")),
    _fault("what stops within hours is owed a start", "calm small hours forgotten", Edit(
        f"{_CLOSING}:owed_by", "hours.start_also or not spell(hours.schedule, now).on", "True")),
    _fault("a person's stop in the night taken for ours", "calm small hours owl touch", Edit("reaper.decide.undo:_moved")),
    _fault("started twice for the same hours (all three checks)", "calm small hours by-hand", Edit("reaper.decide.undo:_moved"),
        Edit(f"{_MORNINGS}:_owed", 'handled.get(str(instance.id), "") >= at.isoformat()', "False"),
        Edit(f"{_MORNINGS}:_lasts", "limit=_BACK) if _counts(a)", "limit=_BACK) if _counts(a) and a.action.stops")),
    _fault("a schedule tag that cannot be read is passed over", "calm small hours unreadable", Edit(
        "reaper.service.hours:NamedHours.applied", "if not names:", "if not names & {NEVER, *self._known}:")),
    _fault("the tag never is passed over", "calm small hours never", Edit("reaper.service.hours:NamedHours.applied", "if not names:", "if not names - {NEVER}:")),
    _fault("mornings forgotten by a restart", "hiccups small hours restart", Edit(
        "reaper.service.cycle:Cycle._decide", "mornings.read(self._store, this.gathering, this.now, starting(self._store))",
        "{r: m for r, m in mornings.read(self._store, this.gathering, this.now, starting(self._store)).items()"
        " if self._store.attempt(m.stop).epoch == self._store.held_lease().epoch}"), seeds=24),
    _fault("mornings never come", "calm small hours", Edit("reaper.decide.causes.morning_start:morning_start", "now < morning.begins_at", "True")),
    _fault("mornings come as soon as the night", "calm small hours", Edit("reaper.decide.causes.morning_start:morning_start", "now < morning.begins_at", "False")),
    _fault("a boot takes no time", "calm small hours", Edit("reaper.decide.mornings:begins", "moment - one.boot - chain", "moment - chain")),
    _fault("what hours stop is decided once and not again", "storm small hours crawl late-hours",
        Edit(f"{_EXECUTE}._stands", "decision.verdict is not Verdict.ACT or", "planned.cause != AFTER_HOURS and decision.verdict is not Verdict.ACT or"),
        Edit(f"{_EXECUTE}._stands", "decision.action is not planned.action:", "planned.cause != AFTER_HOURS and decision.action is not planned.action:"),
        Edit(f"{_EXECUTE}._stands", "if gone is not None:", "if gone is not None and planned.cause != AFTER_HOURS:"), seeds=24),
    _fault("rate of starts off", "calm small hours one-a-minute", Edit("reaper.decide.budget:limits", "budget.per_minute is not None", "False")),
    _fault("order of starts ignored (when and who)", "calm small hours gang order", Edit(f"{_MORNINGS}:_waits"),
        Edit("reaper.decide.mornings:begins", "moment - one.boot - chain", "moment - one.boot")),
    _fault("a schedule that only stops starts as well (both checks)", "calm small hours only-stop",
        Edit(f"{_CLOSING}:owed_by", "hours is None or not hours.schedule.starts", "hours is None"),
        Edit(f"{_MORNINGS}:_may_be_owed", "hours is not None and hours.schedule.starts", "hours is not None")),
    _fault("a schedule that only starts stops as well", "calm small hours only-start", Edit(f"{_CLOSING}:closing", "or not hours.schedule.stops", "")),
    _fault("the wait before hours end not served", "calm small hours", Edit("reaper.model.policy:Policy.warn_for", "Warn(self.hours.wait,", "Warn(timedelta(0),")),
    _fault("machines at work go with their hours", "calm small hours", Edit(
        "reaper.decide.facts:Facts.stops_at_work", ' and self.closing.hours.if_busy == "stop"', "")),
    _fault("the kill switch does not bind starts that are tried again", "hiccups small hours sold-out edit-hours brake edit", Edit(
        f"{_EXECUTE}.start_again", "if cause == MORNING_START else None", "if False else None"), seeds=40),
    _fault("machines without an agent go with their hours", "calm small hours no-agent", Edit(
        "reaper.decide.facts:Facts.stops_unseen", ' and self.closing.hours.no_agent == "warn-and-stop"', "")),
)  # fmt: skip

BY_NAME = {fault.name: fault for fault in FAULTS}
