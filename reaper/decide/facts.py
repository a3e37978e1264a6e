"""All that a decision about one machine may look at, gathered beforehand. Nothing here is fetched, computed late or mutable."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper.decide.closing import Closing
from reaper.decide.job_end import JobEnd, job_end
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.policy import Policy
from reaper.model.resource import ResourceId
from reaper.model.signal import Observation, Quiet, State
from reaper.model.snooze import Snooze


@dataclass(frozen=True, slots=True)
class Member:
    """Another machine of the same job. ``quiet_since``: None when it is not quiet or that is not known."""

    id: ResourceId
    name: str
    state: State
    quiet_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Shield:
    """One thing that protects the machine until ``until`` (None: for ever)."""

    name: str
    reason: str
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Morning:
    """
    A start that a schedule is owed. ``stop``: the stop of ours that it undoes. ``ready_at``: when hours begin; ``begins_at``:
    when to start, so that it is ready by then; ``until``: when they end, and with them what is owed (None: not soon).
    ``refused``: why it is not started. ``waits``: what has to be up first. ``place``: of those that start together.
    """

    hours: str
    stop: str
    ready_at: datetime
    begins_at: datetime
    until: datetime | None
    because: str = ""
    refused: str | None = None
    waits: str | None = None
    place: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """
    ``listed_at``: when the place last answered; ``place_failed``: why its newest listing failed.
    ``stale_after``: how old a listing may be. ``running_since``: the start the cloud shows, else our own first sight.
    ``ineligible``: why it may not be considered at all. ``claimed_by``: another reaper's claim, or an unreadable one.
    ``quiet``: the idle clock's answer under the policy's limits; None: no verified window. ``newest``: the newest window
    of any voice. ``agent_seen``: there was a report once. ``distrust``: why the voice is not believed.
    ``members``: the gang's other members that count; ``gang_incomplete``: why members may be missing.
    ``back_off_until``: when the next try may be made after one that failed.
    ``protections``: the costly read; None: not read yet, which holds.
    ``closing``: the terms of its schedule, where they bind now. ``hours_unread``: why the tag that names its schedule cannot
    be read, so that it is under none. ``morning``: the start that its schedule is owed.
    """

    instance: Instance
    listed_at: datetime
    stale_after: timedelta
    policies: tuple[Policy, ...] = ()
    place_failed: str | None = None
    running_since: datetime | None = None
    ineligible: str | None = None
    shields: tuple[Shield, ...] = ()
    claimed_by: str | None = None
    quiet: Quiet | None = None
    newest: Observation | None = None
    agent_seen: bool = False
    distrust: str | None = None
    snoozes: tuple[Snooze, ...] = ()
    gang: str | None = None
    members: tuple[Member, ...] = ()
    gang_incomplete: str | None = None
    attempt_open: bool = False
    back_off_until: datetime | None = None
    back_off_because: str | None = None
    protections: Protections | None = None
    closing: Closing | None = None
    hours_unread: str | None = None
    morning: Morning | None = None

    @property
    def policy(self) -> Policy | None:
        """The terms that apply. Of several the first, for showing only: two policies hold whatever they nominate."""
        return self.policies[0] if self.policies else None

    @property
    def gpus(self) -> int | None:
        """How many GPUs the machine should have: by the inventory, else as its agent remembers. None: not known."""
        if self.instance.gpus is not None:
            return self.instance.gpus
        return self.newest.expected_gpus if self.newest is not None else None

    @property
    def ended_job(self) -> JobEnd | None:
        """The end of its last job, once that is as long ago as the policy asks. None: not so, not known, or not asked for."""
        terms = self.policy.job_ended if self.policy is not None else None
        end = job_end(self.newest, self.quiet) if terms is not None else None
        return end if end is not None and terms is not None and end.ended_for >= terms.ended_for else None

    @property
    def launcher(self) -> str | None:
        """
        What lives and could start the next process of a job that has none on a GPU now (a sweep's shell between two trials, torchrun). It holds
        the machine as memory on its GPUs does. None: nothing, or it is not known.
        """
        jobs = self.newest.jobs if self.newest is not None else None
        return next((job.launcher for job in jobs or () if job.ended_age_s is not None and job.launcher is not None), None)

    @property
    def unheld_for(self) -> timedelta:
        """How long nothing has been held on its GPUs, nor lived that could put something there."""
        return timedelta(0) if self.quiet is None or self.launcher is not None else self.quiet.unheld_for

    @property
    def span(self) -> timedelta | None:
        """
        The span that the nominating term has to cover: that of an ended job, else ``idle_for`` when nothing was held in it,
        else ``held_for``. Outside hours the schedule's own; shortly before, where no other term is reached yet.
        """
        if self.policy is None or self.quiet is None:
            return None
        terms, ended = self.policy.idle, self.policy.job_ended
        usual = terms.idle_for if self.unheld_for >= terms.idle_for else terms.held_for
        if ended is not None and self.ended_job is not None:
            usual = ended.ended_for
        own = self.closing_span
        if own is not None and self.quiet.quiet_for >= own and ((self.closing is not None and self.closing.off) or self.quiet.quiet_for < usual):
            return own
        return usual

    @property
    def closing_span(self) -> timedelta | None:
        """How long idle is enough by the schedule, where its terms bind; None: they do not."""
        if self.closing is None or self.quiet is None:
            return None
        hours = self.closing.hours
        return hours.idle_for if self.unheld_for >= hours.idle_for else hours.held_for

    @property
    def never_had_agent(self) -> bool:
        """Nothing ever spoke for it, which is another thing than an agent that fell silent."""
        return not self.agent_seen and self.newest is None and self.quiet is None and self.distrust is None

    @property
    def stops_at_work(self) -> bool:
        """Whether the schedule's terms bind now and stop a busy machine, in so many words."""
        return self.closing is not None and self.closing.hours.if_busy == "stop"

    @property
    def stops_unseen(self) -> bool:
        """Whether the schedule's terms bind now, and stop this machine that never had an agent."""
        return self.never_had_agent and self.closing is not None and self.closing.hours.no_agent == "warn-and-stop"


MOST_AHEAD = timedelta(seconds=30)
"""How far ahead of us a moment may lie that was ours when it was written. Further, and a clock was set back: no age is known."""


HOLE_PERIODS = 3


def silent_for(facts: Facts, now: datetime) -> timedelta | None:
    """How long ago the newest verified window ended, when that is over three report periods; None: fresh, or there is none."""
    if facts.quiet is None:
        return None
    age = now - facts.quiet.until
    return age if age > HOLE_PERIODS * facts.quiet.period else None
