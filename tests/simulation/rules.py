"""
What must never happen, one rule a function: each looks at one stop as it arrives at the cloud and answers with what is
wrong, or None. They judge by the true lives and by what the world did, never by what the daemon says of itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from reaper.model.kinds.snapshot import SnapshotState
from reaper.model.plan import Attempt
from reaper.service.fleet import read_jumps
from tests.simulation import hours
from tests.simulation.fleet import Heard, Machine
from tests.simulation.lives import DAY, HOUR, MINUTE
from tests.simulation.process import Process
from tests.simulation.settings import Settings, Terms, Times

WINDOW = 60.0
"""The report period, in seconds. Longer windows in dull times do not stretch what counts as fresh."""

LATER = ("snapshot", "terminate")
"""Verbs of an attempt that has begun with another."""

LATER_VERBS = ("stop-and-snapshot", "terminate")
ACTIONS = {
    "stop": ("stop", "stop-and-snapshot", "terminate"), "hibernate": ("hibernate", "suspend"), "start": ("start",),
    "snapshot": LATER_VERBS, "terminate": ("terminate",),
}  # fmt: skip
"""Of which actions each verb is a step."""

READ_TO_CALL = 10.0
GRACE = DAY
DISTRUST = HOUR

BLINDING = {"nvml-failed": "its GPUs could not be read", "gpu-lost": "a GPU was lost", "misfit": "its GPUs do not fit the inventory"}
HALF_BLIND = {"no-cpu": "its CPU could not be read", "no-disk": "its disks' traffic could not be read"}


@dataclass(frozen=True, slots=True)
class Case:
    """
    One call that takes a machine away. ``before``: the machine as it truly was when the last honest read could be made;
    ``look``: the newest believable window that had reached a door; ``warned_at``: when its last warning was accepted; ``times``: the
    schedule it is under by the configuration in force.
    """

    judge: Any
    world: Any
    verb: str
    machine: Machine
    process: Process
    settings: Settings
    terms: Terms | None
    instance: Instance
    before: Instance
    attempt: Attempt | None
    opened: int
    now: float
    look: Heard | None
    warned_at: float | None
    warned_under: str | None
    slack: float
    times: Times | None = None

    @property
    def cause(self) -> str:
        return self.attempt.cause if self.attempt is not None else ""

    @property
    def term(self) -> float:
        """Seconds of idleness that the cause asks for."""
        assert self.terms is not None
        if self.cause == "job-ended":
            return self.terms.ended_for or 0.0
        if self.by_the_clock:
            assert self.times is not None
            end = self.look.end if self.look is not None else self.now
            unheld = end - self.machine.track.held_until(end) >= self.times.idle_for - WINDOW
            return self.times.idle_for if unheld else self.times.held_for
        return self.terms.held_for if self.cause == "held" else self.terms.idle_for


    @property
    def by_the_clock(self) -> bool:
        """Stopped for the end of hours. Without a schedule that can be read another rule accuses, and the rest has nothing to say."""
        return self.cause == "after-hours" and self.times is not None

    @property
    def unseen(self) -> bool:
        """Stopped by its schedule's own words although it never had an agent."""
        return self.by_the_clock and self.machine.agent is None and self.times is not None and self.times.no_agent == "warn-and-stop"

    @property
    def at_work_too(self) -> bool:
        """Stopped by its schedule's own words whether it works or not."""
        return self.by_the_clock and self.times is not None and self.times.if_busy == "stop"


Rule = Callable[[Case], str | None]


# --- may anything be done at all ------------------------------------------------------------------------------------------


def only_where_enforced(case: Case) -> str | None:
    """Mode and policy enforce, scope names the verb, and the newest configuration can be read."""
    if case.settings.mode != "enforce":
        return "the configuration in force observes"
    if case.settings.broken is not None:
        return "the newest configuration is refused"
    if "stop" not in case.settings.verbs:
        return "[scope] does not name stop"
    if case.attempt is not None and (case.attempt.action.value in LATER_VERBS and "snapshot" not in case.settings.verbs):
        return "[scope] does not name snapshot"
    if case.terms is None:
        return "no policy matches it"
    if case.terms.mode != "enforce":
        return f"its policy {case.terms.tag} observes"
    if not case.terms.takes:
        return f"its policy {case.terms.tag} only reports"
    wanted = case.terms.action
    if wanted == "hibernate" and case.instance.hibernation is not True:
        wanted = case.terms.hibernate_else
    if wanted == "suspend" and case.instance.suspends is not True:
        wanted = case.terms.suspend_else
    if wanted == "terminate" and case.by_the_clock:
        wanted = "stop"  # what is ended is not there in the morning
    if case.attempt is not None and case.attempt.action.value != wanted:
        return f"its policy wants it to {wanted}, and this is to {case.attempt.action}"
    if case.verb != ("hibernate" if wanted in ("hibernate", "suspend") else "stop"):
        return f"its policy wants it to {wanted}, and the call is {case.verb}"
    if case.settings.also == case.terms.tag and case.instance.tags.get("twice") == "yes":
        return "two policies match it"
    return None


def kill_switch(case: Case) -> str | None:
    return "the kill switch is on" if case.judge.brake_since is not None else None


def breaker(case: Case) -> str | None:
    now = case.process.clock.now()
    jump = next((j for j in read_jumps(case.world.people) if j.blocks(case.machine.id, now)), None)
    return f"the breaker is open for it: {jump.because}" if jump is not None else None


def led(case: Case) -> str | None:
    """The caller held the lease when it wrote the intent, and nobody had taken it before."""
    if case.attempt is None:
        return None
    mine = [lease for _, name, lease in case.judge.leases if name == case.process.name and lease.epoch == case.attempt.epoch]
    if not mine:
        return f"{case.process.name} never held the lease of epoch {case.attempt.epoch}"
    intent_at = case.world.clock.seconds(case.attempt.intent_at) - case.process.clock.off
    taken = [(at, name) for at, name, lease in case.judge.leases if lease.epoch > case.attempt.epoch and at < intent_at - 0.5]
    return f"{taken[0][1]} had taken the lease {intent_at - taken[0][0]:.0f} s before the intent" if taken else None


def clocks_agree(case: Case) -> str | None:
    """Nothing is taken away by a clock that is more than half a minute off the cloud's."""
    return f"our clock is {case.process.clock.off:.0f} s off the cloud's" if abs(case.process.clock.off) > 30.0 else None


def read_afresh(case: Case) -> str | None:
    """From the fresh read to the call at most ten seconds."""
    read = case.world.cloud.read_at.get((case.process.name, case.machine.id))
    if read is None or case.now - read > READ_TO_CALL + 0.1:
        return "it was not read afresh" if read is None else f"the fresh read was {case.now - read:.0f} s before the call"
    return None


def not_hammered(case: Case) -> str | None:
    """After tries that failed in a row the next one waits: five minutes, and twice as long each time."""
    failures, last = 0, None
    for attempt in case.world.people.attempts(resource=case.machine.id, limit=30):
        if attempt.outcome is None:
            continue
        if attempt.outcome.value not in ("failed", "refused"):
            break
        failures, last = failures + 1, last or attempt
    if last is None:
        return None
    ago = case.now - case.world.clock.seconds(last.outcome_at)
    wait = min(5 * MINUTE * 2 ** (failures - 1), 6 * HOUR)
    return f"its try number {failures + 1} comes {ago:.0f} s after the last one failed" if ago < wait - 5.0 - case.slack else None


def one_call_per_intent(case: Case) -> str | None:
    if case.attempt is None:
        return "no intent was written down before the call"
    if case.attempt.id in case.judge.called:
        return f"the intent {case.attempt.id} was called before"
    if case.opened > 1:
        return f"{case.opened} actions on it are open at once"
    return None


# --- never to be touched ---------------------------------------------------------------------------------------------------


def in_scope(case: Case) -> str | None:
    if all(i.tags.get("team") != "ml" for i in (case.instance, case.before)):
        return f"it is out of scope: team {case.instance.tags.get('team')}"
    return None


def not_claimed(case: Case) -> str | None:
    claims = [_claim(i, case.settings) for i in (case.instance, case.before)]
    return claims[0] if all(claims) else None


def _claim(instance: Instance, settings: Settings) -> str | None:
    others = [value for key, value in instance.tags.items() if key.casefold() == "reaper" and value != "sim"]
    if others:
        return f"it is claimed by {others[0]}"
    if settings.claim and instance.tags.get("reaper") != "sim":
        return "it does not carry our claim"
    return None


def not_protected(case: Case) -> str | None:
    return case.judge.shields.protecting(case.machine, case.now, case.settings)  # type: ignore[no-any-return]


def not_snoozed(case: Case) -> str | None:
    for since, until in case.machine.snoozed:
        if since < case.now < until:
            return f"it is snoozed for {(until - case.now) / MINUTE:.0f} minutes more"
    return None


def nothing_a_stop_breaks(case: Case) -> str | None:
    """Spot, managed, scarce, stop-protected machines, orchestrators, and what lies on local disks."""
    instance, agent, terms = case.instance, case.machine.agent, case.terms
    if instance.lifecycle is Lifecycle.SPOT:
        return "it is a one-time spot machine"
    if instance.managed_by is not None:
        return f"it belongs to {instance.managed_by}"
    if case.machine.id in case.world.cloud.hidden_owners:
        return "a node group owns it"
    if instance.lifecycle is Lifecycle.CAPACITY_BLOCK or instance.reservation is not None:
        return "what it runs on is paid for either way"
    if case.machine.id in case.world.cloud.bad_keys:
        return "it could not start again: a key of its disks is disabled"
    if terms is not None and terms.action == "terminate" and _end_protected(case):
        return "it is protected from being ended, and that is what it is stopped for"
    if terms is not None and instance.type in terms.scarce:
        return f"{instance.type} is scarce"
    protected = case.world.cloud.stop_protected.get(case.machine.id, False)
    if protected is not False and case.now - case.judge.stop_protection_since.get(case.machine.id, -1e9) > READ_TO_CALL:
        return "its stop protection is on, or cannot be read"
    if agent is not None and agent.orchestrators and terms is not None and terms.orchestrator == "hold":
        return f"{agent.orchestrators[0]} runs on it"
    if instance.local_store and terms is not None:
        return _data_lost(case)
    return None


def _data_lost(case: Case) -> str | None:
    agent, terms = case.machine.agent, case.terms
    assert terms is not None
    if agent is None or terms.local_nvme == "hold":
        return "a stop wipes its local disks"
    if terms.local_nvme == "if-empty" and agent.disk_used > 0.02:
        return f"its local disks are {agent.disk_used:.0%} full"
    end = case.look.end if case.look is not None else case.now
    if -1.0 < end - agent.disk_written_at < case.term - 60.0:
        return f"its local disks were written to {end - agent.disk_written_at:.0f} s ago"
    return None


def _end_protected(case: Case) -> bool:
    return case.machine.id in case.world.cloud.end_protected and case.now - case.judge.end_protection_since.get(case.machine.id, -1e9) > READ_TO_CALL


def old_enough(case: Case) -> str | None:
    up = case.now - case.judge.up_since.get(case.machine.id, -1e9)
    if case.terms is not None and up < case.terms.min_age - 5.0 - case.slack:
        return f"it was started {up:.0f} s ago"
    return None


# --- work and knowledge ----------------------------------------------------------------------------------------------------


def no_work_taken(case: Case) -> str | None:
    """Not busy for more than one report window. What began after the last look is counted elsewhere, and bounded."""
    track = case.machine.track
    if case.unseen or case.at_work_too:
        case.judge.by_its_words += 1
        return None
    if not track.at(case.now).work:
        return None
    began = track.work_began(case.now)
    after_the_look = case.look is not None and began > case.look.end - 1.0
    if after_the_look or case.now - began <= WINDOW:
        case.judge.late(case.machine, case.now - began)
        return None
    return f"it has been {track.at(case.now).name} for {case.now - began:.0f} s"


def idle_for_its_term(case: Case) -> str | None:
    """By truth nothing was worked within the term that the cause asks for, up to the last look."""
    if case.look is None or case.terms is None or case.at_work_too:
        return None
    track, end = case.machine.track, case.look.end
    begin = end - case.term + WINDOW
    for a, b in track.worked_in(begin, end - 20.0):
        if b - a < 20.0 and track.at((a + b) / 2).gpu <= 0.05:
            continue  # too little of a minute for a mean
        if case.judge.blink(case.machine, a, b):
            continue
        return f"it was {track.at(a).name} {end - b:.0f} s before the last look, and its term is {case.term:.0f} s"
    if case.cause == "gpu-idle" and track.held_until(end) > begin + WINDOW:
        return "something was held on its GPUs within the term"
    if case.cause == "job-ended" and track.at(case.now).launcher is not None and track.since(case.now) < end - WINDOW:
        return f"the launcher {track.at(case.now).launcher} of its job lives"
    return None


def looked_again(case: Case) -> str | None:
    """A believable window that began after the wait was served, and ended at most one report period before the call."""
    if case.look is None:
        return None if case.unseen else "nothing believable was ever heard of it"
    age = case.now - case.look.end
    if age > WINDOW + case.slack:
        return f"the last look ended {age:.0f} s before the call"
    return None


def seen_well(case: Case) -> str | None:
    """Every GPU and every other sign readable at the last look, and nine tenths of the term without a hole."""
    look = case.look
    if look is None or case.terms is None:
        return None
    for word, because in {**BLINDING, **HALF_BLIND}.items():
        if word in look.ails:
            return f"{because} at the last look"
    if "no-wait" in look.ails and look.held:
        return "its data wait could not be read at the last look"
    if "no-orchestrator-look" in look.ails and case.terms.orchestrator == "hold":
        return "whether an orchestrator runs could not be read"
    return case.judge.uncovered(case.machine, look, _term_seen(case))  # type: ignore[no-any-return]


def _term_seen(case: Case) -> float:
    """Outside hours the schedule's own term is enough, whichever cause was warned of."""
    if case.times is None or case.times.only == "start" or hours.on(case.times, case.world.clock, case.now):
        return case.term
    return min(case.term, case.times.held_for)


def one_voice(case: Case) -> str | None:
    """Nobody is believed for an hour after two spoke with one identity."""
    cloned = [heard.at for heard in case.machine.heard if heard.origin == "clone"]
    if cloned and case.now - cloned[-1] < DISTRUST - MINUTE and any(h.origin == "own" and h.at > cloned[0] for h in case.machine.heard):
        return f"a second machine spoke with its identity {case.now - cloned[-1]:.0f} s ago"
    return None


def hook_agrees(case: Case) -> str | None:
    look = case.look
    if look is None or case.warned_at is None or look.hook in (None, "ok"):
        return None
    if case.now - case.warned_at < DAY:
        return f"its pre-stop hook said {look.hook}"
    return None


# --- people ----------------------------------------------------------------------------------------------------------------


def warned_and_waited(case: Case) -> str | None:
    """A warning under this policy was accepted, after everything that makes warnings anew, and its wait was served in full."""
    if case.warned_at is None or (case.look is None and not case.unseen) or case.terms is None:
        return "nobody was warned"
    if case.warned_under != case.terms.tag:
        return f"people were warned under {case.warned_under}, and it is under {case.terms.tag} now"
    anew = case.judge.anew_since(case.machine, case.terms.tag, case.warned_at, _schedules(case))
    if anew is not None:
        return f"people were not warned anew after {anew}"
    looked, ended = (case.look.start, case.look.end) if case.look is not None and not case.unseen else (case.now, case.now)
    worked = case.machine.track.worked_until(ended - 25.0)
    if worked > case.warned_at and not (case.unseen or case.at_work_too) and not case.judge.blink(case.machine, worked - 1.0, worked):
        return "it has worked since it was warned"
    wait, quiet = case.terms.waits(case.cause)
    if case.by_the_clock and case.times is not None:
        wait, quiet = case.times.wait, case.terms.quiet if case.times.quiet else None
    served = case.judge.served(case.machine, case.warned_at, looked + case.slack, quiet, case.settings.cycle)
    if served < wait - 2.0:
        return f"{served:.0f} s of its wait of {wait:.0f} s were served when the last look began"
    return None


def _schedules(case: Case) -> tuple[str, ...]:
    """What it was warned under must be what it is stopped under, as far as the clock stops it."""
    found = hours.under(case.instance, case.settings) or hours.under(case.before, case.settings)
    return (f"hours {found[0]}",) if case.by_the_clock and found is not None else ()


def only_after_hours(case: Case) -> str | None:
    """The clock stops nothing before hours end, nor what is under no schedule that can be read, nor what was started since."""
    if case.cause != "after-hours":
        return None
    wrong = [_within_hours(case, instance) for instance in (case.instance, case.before)]
    return wrong[0] if all(wrong) else None


def _within_hours(case: Case, instance: Instance) -> str | None:
    found, clock = hours.under(instance, case.settings), case.world.clock
    if found is None:
        return "it is under no schedule that can be read"
    name, times = found
    if times.only == "start":
        return f"hours {name} stop nothing"
    moments = [t for t in (case.now, case.now + case.process.clock.off) if not hours.on(times, clock, t)]
    if not moments:
        return f"hours {name} want it on for {(hours.until(times, clock, case.now) - case.now) / MINUTE:.0f} minutes more"
    ended = hours.since(times, clock, moments[0])
    if case.judge.launched_at.get(case.machine.id, -1e9) > ended + 2.0:
        return f"it was started {(case.judge.launched_at[case.machine.id] - ended) / MINUTE:.0f} minutes after hours {name} had ended"
    if case.look is not None and not case.unseen and case.look.start + case.slack + abs(case.process.clock.off) < ended:
        return f"the last look began {ended - case.look.start:.0f} s before hours {name} ended"
    return None


def gang_whole(case: Case) -> str | None:
    """Every other member that is up is as idle as this one. That it goes down too is asked a little later."""
    for mate in case.judge.mates(case.machine):
        state = case.world.cloud.machines[mate.id].state
        if not state.counts or case.judge.stopped_just_now(mate):
            continue
        track = mate.track
        if track.at(case.now).work and case.now - track.work_began(case.now) > WINDOW + case.slack + 15.0:
            return f"{mate.id.native} of the same job is {track.at(case.now).name}"
        if mate.agent is None or mate.agent.shared:
            return f"nobody knows what {mate.id.native} of the same job does"
        newest = case.judge.newest(mate)
        if newest is None or case.now - newest.end > 3 * WINDOW + case.slack:
            return f"{mate.id.native} of the same job is silent"
    return None


def within_budgets(case: Case) -> str | None:
    return case.judge.spending.refuses(case)  # type: ignore[no-any-return]


STOP_RULES: tuple[Rule, ...] = (
    only_where_enforced, kill_switch, breaker, led, clocks_agree, read_afresh, one_call_per_intent, not_hammered, in_scope, not_claimed, not_protected, not_snoozed, nothing_a_stop_breaks,
    old_enough, only_after_hours, no_work_taken, idle_for_its_term, looked_again, seen_well, one_voice, hook_agrees, warned_and_waited, gang_whole, within_budgets,
)  # fmt: skip


# --- starts ----------------------------------------------------------------------------------------------------------------


def started_only_ours_once(case: Case) -> str | None:
    """Only what we stopped ourselves and nobody touched since, and each stop is undone once."""
    judge, machine = case.judge, case.machine
    if case.instance.state in (InstanceState.RUNNING, InstanceState.PENDING):
        return f"it is {case.instance.state} already"
    if machine.id not in judge.down_by_us:
        return "it was not us who stopped it"
    if machine.id in judge.touched_since:
        return "somebody touched it since we stopped it"
    return None


def for_its_hours(case: Case) -> str | None:
    """
    A start by the clock is owed, comes shortly before hours begin or while they run, once for these hours, and after those of
    its job that come first.
    """
    if case.cause != "morning-start":
        return None
    if case.terms is None or case.terms.mode != "enforce":
        return "no policy that enforces matches it"
    if case.judge.brake_since is not None and case.now - case.judge.brake_since > READ_TO_CALL:
        return f"the kill switch has been on for {case.now - case.judge.brake_since:.0f} s"
    wrong = [case.judge.mornings.refuses(case, instance) for instance in (case.instance, case.before)]
    return wrong[0] if all(wrong) else None


def start_enforced(case: Case) -> str | None:
    if case.settings.mode != "enforce" or "start" not in case.settings.verbs:
        return "the configuration in force starts nothing"
    return None


# --- the later steps: copies of its disks, and its end -----------------------------------------------------------------------


def step_enforced(case: Case) -> str | None:
    if case.settings.mode != "enforce":
        return "the configuration in force observes"
    return None if case.verb in case.settings.verbs else f"[scope] does not name {case.verb}"


def leads_now(case: Case) -> str | None:
    """Whoever makes a later step holds the lease as it does: its intent may be another's."""
    name = case.judge.leases[-1][1] if case.judge.leases else "nobody"
    return None if name == case.process.name else f"{name} leads"


def still_down(case: Case) -> str | None:
    """As our stop left it: nobody started it or changed its disks since. ``attempt.before`` is what was ours to stop."""
    if case.attempt is None:
        return "nothing of ours is open on it"
    if case.before.state is not InstanceState.STOPPED and case.instance.state is not InstanceState.STOPPED:
        return f"it is {case.instance.state}"
    if case.machine.id not in case.judge.down_by_us:
        return "it was not us who stopped it"
    was = case.attempt.before
    if all(i.volumes != was.volumes or i.launched_at != was.launched_at for i in (case.before, case.instance)):
        return "it was started, or its disks were changed, since we stopped it"
    return None


def one_copy_at_a_time(case: Case) -> str | None:
    """No disk is copied again for one attempt while a copy of it is on its way or complete."""
    copies = [copy for copy in case.world.cloud.copies if case.attempt is not None and copy.shown.tags.get("idle-reaper:attempt") == case.attempt.id]
    standing = {copy.shown.volume for copy in copies if copy.ends is not SnapshotState.FAILED or case.now < copy.until}
    return "every disk of it has its copy already" if standing >= set(case.instance.volumes) else None


def ends_by_policy(case: Case) -> str | None:
    """What ends a machine is written in the policy that is in force for it now, and nowhere else."""
    if case.settings.broken is not None:
        return "the newest configuration is refused"
    if case.terms is None or case.terms.mode != "enforce" or case.terms.action != "terminate":
        return "its policy does not say so"
    if case.attempt is None or case.attempt.action.value != "terminate":
        return "what was begun on it was not to end it"
    if case.attempt.policy != case.terms.tag:
        return f"it was stopped under {case.attempt.policy}, and it is under {case.terms.tag} now"
    return None


def nothing_bars_its_end(case: Case) -> str | None:
    if _end_protected(case):
        return "it is protected from being ended"
    protected = case.world.cloud.stop_protected.get(case.machine.id, False)
    if protected is not False and case.now - case.judge.stop_protection_since.get(case.machine.id, -1e9) > READ_TO_CALL:
        return "its stop protection is on, or cannot be read"
    if case.instance.managed_by is not None or case.machine.id in case.world.cloud.hidden_owners:
        return "a group owns it"
    return None


def every_disk_kept(case: Case) -> str | None:
    """Each disk has a complete copy that was begun after the machine was down: nothing was written since."""
    down = next((stop.at for stop in reversed(case.judge.stops) if stop.machine is case.machine), None)
    if down is None:
        return "it was not us who stopped it"
    disks = set(case.instance.volumes) & set(case.before.volumes)  # one that came a moment ago could not be known
    for volume in sorted(disks):
        good = [
            copy for copy in case.world.cloud.copies
            if copy.shown.volume == volume and copy.of == case.machine.id and copy.began > down and copy.at(case.now).state is SnapshotState.COMPLETED
        ]  # fmt: skip
        if not good:
            return f"{volume} has no complete copy of after the stop"
    return None


def untouched_since_the_stop(case: Case) -> str | None:
    """Somebody who writes a tag on a machine that we stopped still cares for it."""
    if case.attempt is None:
        return None
    was = {key: value for key, value in case.attempt.before.tags.items() if not key.startswith("idle-reaper:")}
    for instance in (case.before, case.instance):
        if {key: value for key, value in instance.tags.items() if not key.startswith("idle-reaper:")} == was:
            return None
    return "its tags were changed since we stopped it"


SNAPSHOT_RULES: tuple[Rule, ...] = (step_enforced, kill_switch, leads_now, in_scope, still_down, one_copy_at_a_time)
END_RULES: tuple[Rule, ...] = (
    step_enforced, kill_switch, breaker, leads_now, read_afresh, in_scope, not_claimed, not_protected, not_snoozed, still_down, ends_by_policy,
    nothing_bars_its_end, every_disk_kept, untouched_since_the_stop,
)  # fmt: skip

START_RULES: tuple[Rule, ...] = (start_enforced, led, read_afresh, one_call_per_intent, in_scope, started_only_ours_once, for_its_hours, within_budgets)


RULES: dict[str, tuple[Rule, ...]] = {
    "stop": STOP_RULES, "hibernate": STOP_RULES, "start": START_RULES, "snapshot": SNAPSHOT_RULES, "terminate": END_RULES,
}  # fmt: skip

def until_of(text: str) -> datetime | None:
    """When a keep-until tag ends, as people mean it; None: unreadable, which protects for ever."""
    if text.isdigit():
        return datetime.fromtimestamp(int(text)).astimezone()
    try:
        if len(text) == 10:
            return datetime.fromisoformat(f"{text}T12:00:00+00:00") + timedelta(days=1)  # its end at the western end of the world
        return datetime.fromisoformat(text)
    except ValueError:
        return None
