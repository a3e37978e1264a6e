"""Joins inventory, reports, policy, gangs, snoozes and open attempts into the facts of one decision."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reaper.decide.closing import closing
from reaper.decide.correlate import state_of
from reaper.decide.facts import MOST_AHEAD, Facts, Member, Morning, Shield
from reaper.decide.links import pairs
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Configuration, Hours, Policy, gang_keys
from reaper.model.resource import Place, ResourceId
from reaper.model.signal import Activity, Quiet
from reaper.model.snooze import Snooze
from reaper.ports import KeptListing, Ledger, SeenProtection, Store
from reaper.service.gangs import Gangs
from reaper.service.hours import NamedHours
from reaper.service.inventory import Inventory
from reaper.service.shields import current, remember
from reaper.service.voices import distrusted
from reaper.service.watch import Watch

CLAIM_KEY = "reaper"
"""The claim tag where none is configured: another reaper's name in it protects."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knew at one moment, indexed by machine. Read again before every action: people act meanwhile."""

    snoozes: dict[ResourceId, tuple[Snooze, ...]] = field(default_factory=dict)
    protections: dict[ResourceId, dict[str, SeenProtection]] = field(default_factory=dict)
    open_attempts: frozenset[ResourceId] = frozenset()
    back_offs: dict[ResourceId, tuple[datetime, str]] = field(default_factory=dict)


def read_known(store: Store, now: datetime) -> Known:
    snoozes: dict[ResourceId, tuple[Snooze, ...]] = {}
    for snooze in store.snoozes(now):
        snoozes[snooze.resource] = (*snoozes.get(snooze.resource, ()), snooze)
    protections: dict[ResourceId, dict[str, SeenProtection]] = {}
    for record in store.seen_protections():
        protections.setdefault(record.resource, {})[record.name] = record
    open_attempts = frozenset(attempt.resource for attempt in store.attempts(open_only=True))
    return Known(snoozes, protections, open_attempts, _back_offs(store.attempts(limit=500), now))


def _back_offs(newest_first: Iterable[Attempt], now: datetime) -> dict[ResourceId, tuple[datetime, str]]:
    """When a machine may be tried again after failed tries: 5 minutes, doubled with each failure in a row, at most 6 hours."""
    failures: dict[ResourceId, int] = {}
    last: dict[ResourceId, Attempt] = {}
    settled: set[ResourceId] = set()
    for attempt in newest_first:
        if attempt.resource in settled or attempt.outcome is None:
            continue
        if attempt.outcome not in (Outcome.FAILED, Outcome.REFUSED):
            settled.add(attempt.resource)
            continue
        failures[attempt.resource] = failures.get(attempt.resource, 0) + 1
        last.setdefault(attempt.resource, attempt)
    found = {}
    for resource, attempt in last.items():
        wait = min(timedelta(minutes=5) * 2 ** min(failures[resource] - 1, 10), timedelta(hours=6))
        until = (attempt.outcome_at or attempt.intent_at) + wait
        if now < until:
            found[resource] = (until, attempt.detail or "")
    return found


class Gathering:
    """One cycle's facts. ``instances`` are its own copy: a fresh read replaces one of them for the decisions after it."""

    def __init__(self, inventory: Inventory, known: Known, watch: Watch, configuration: Configuration, now: datetime) -> None:
        self.configuration = configuration
        self.known = known
        self._watch = watch
        self._inventory = inventory
        self._instances = dict(inventory.instances)
        self._linked = self._connected()
        self._gangs = self._together()
        self._stale_after = max(3 * configuration.cycle, timedelta(minutes=2))
        self._policies: dict[ResourceId, tuple[Policy, ...]] = {}
        self._named = NamedHours(configuration)
        self.mornings: dict[ResourceId, Morning] = {}
        self._limits = {policy.name: policy.limits for policy in configuration.policies}
        self._members: dict[ResourceId, tuple[datetime, Member]] = {}
        self.kept_protections: list[SeenProtection] = []
        self.dropped_protections: list[SeenProtection] = []
        self._shields = {id: self._remember(instance, now) for id, (instance, _) in self._instances.items()}

    def _remember(self, instance: Instance, now: datetime) -> tuple[Shield, ...]:
        seen = self.known.protections.get(instance.id, {})
        self._policies[instance.id] = self._named.applied(self.configuration.policies_for(instance), instance)
        cap = self._cap(instance.id)
        shields, keep, drop = remember(instance, current(instance, self.configuration, cap, seen, now), seen, now)
        self.kept_protections += [record for record in keep if record != seen.get(record.name)]
        self.dropped_protections += drop
        return shields

    def _cap(self, resource: ResourceId) -> timedelta:
        return max((policy.snooze_up_to for policy in self._policies.get(resource, ())), default=timedelta(days=5))

    def snoozes_of(self, resource: ResourceId) -> tuple[Snooze, ...]:
        """With the ends that hold under its policies."""
        return tuple(snooze.capped(self._cap(resource)) for snooze in self.known.snoozes.get(resource, ()))

    def _together(self) -> Gangs:
        return Gangs((instance for instance, _ in self._instances.values()), self.configuration.gang_same, sorted(self._linked))

    def _connected(self) -> frozenset[tuple[ResourceId, ResourceId]]:
        asked = [instance for instance in self.instances if instance.state.counts and instance.gpus != 0]
        return pairs(asked, self._watch.links(instance.id for instance in asked))

    @property
    def instances(self) -> Iterable[Instance]:
        return [instance for instance, _ in self._instances.values()]

    def instance(self, resource: ResourceId) -> Instance | None:
        found = self._instances.get(resource)
        return found[0] if found is not None else None

    def replace_instance(self, fresh: Instance, now: datetime) -> None:
        """A fresh read of one machine: it stands for the listing from here on."""
        old = self._instances.get(fresh.id)
        listing = old[1] if old is not None else KeptListing(_place(fresh), (), now)
        self._members.clear()
        self._instances[fresh.id] = (fresh, replace(listing, listed_at=now, failed=None))
        if old is None or gang_keys(old[0], self.configuration.gang_same) != gang_keys(fresh, self.configuration.gang_same):
            self._gangs = self._together()
        self._shields[fresh.id] = self._remember(fresh, now)

    def catch_up(self, store: Store, resource: ResourceId, now: datetime) -> None:
        """What another process's door kept of the machine and its gang since: a report there counts as one that came in here."""
        gang = self._gangs.of(resource)
        self._watch.catch_up_on(store, (resource, *(self.gang_members(gang) if gang is not None else ())), now)
        self._members.clear()
        linked = self._connected()
        if linked != self._linked:
            self._linked = linked
            self._gangs = self._together()

    def hours_of(self, resource: ResourceId) -> Hours | None:
        """The schedule that a machine is under: its tag's, else its policy's. None: none, or two policies match."""
        policies = self._policies.get(resource, ())
        return policies[0].hours if len(policies) == 1 else None

    def gang_of(self, resource: ResourceId) -> str | None:
        return self._gangs.of(resource)

    def gang_members(self, key: str) -> tuple[ResourceId, ...]:
        """Running members of a gang, as they stand now."""
        return tuple(id for id in self._gangs.members(key) if self._instances[id][0].state.counts)

    def facts(self, resource: ResourceId, now: datetime, protections: Protections | None = None) -> Facts:
        """Raises KeyError for a machine that is not in the inventory."""
        facts = self._own(resource, now, protections)
        key = self._gangs.of(resource)
        if key is None:
            return facts
        members = tuple(self._member(id, now) for id in self.gang_members(key) if id != resource)
        return replace(facts, gang=key, members=members, gang_incomplete=self._incomplete(facts, now))

    def _own(self, resource: ResourceId, now: datetime, protections: Protections | None = None) -> Facts:
        instance, listing = self._instances[resource]
        configuration, known = self.configuration, self.known
        policies = self._policies[resource]
        ledger = self._inventory.ledgers.get(resource)
        voice = self._watch.voice(resource)
        back_off = known.back_offs.get(resource)
        since = _running_since(instance, ledger)
        return Facts(
            instance=instance,
            listed_at=listing.listed_at,
            place_failed=listing.failed,
            stale_after=self._stale_after,
            policies=policies,
            running_since=since,
            ineligible=_ineligible(instance, configuration),
            shields=self._shields[resource],
            claimed_by=_claimed(instance, configuration),
            quiet=self._quiet(resource, policies),
            newest=self._watch.newest(resource),
            agent_seen=voice is not None,
            distrust=distrusted(voice, now) if voice is not None else None,
            snoozes=self.snoozes_of(resource),
            attempt_open=resource in known.open_attempts,
            back_off_until=back_off[0] if back_off is not None else None,
            back_off_because=back_off[1] if back_off is not None else None,
            protections=protections,
            closing=closing(policies[0].hours, since, now) if policies else None,
            hours_unread=self._named.unread(instance),
            morning=self.mornings.get(resource),
        )

    def _quiet(self, resource: ResourceId, policies: tuple[Policy, ...]) -> Quiet | None:
        if not policies:
            return None
        terms, ended, hours = policies[0].idle, policies[0].job_ended, policies[0].hours
        spans = (terms.idle_for, terms.held_for, *((ended.ended_for,) if ended is not None else ()))
        spans += (hours.idle_for, hours.held_for) if hours is not None else ()
        return self._watch.quiet(resource, self._limits[policies[0].name], spans, served=True)

    def _member(self, resource: ResourceId, now: datetime) -> Member:
        """Each asks for all the others: in a gang of hundreds the same answer at the same moment is looked up once."""
        told = self._members.get(resource)
        if told is not None and told[0] == now:
            return told[1]
        facts = self._own(resource, now)
        state = state_of(facts, now)
        quiet = facts.quiet.since if facts.quiet is not None and state.activity is Activity.IDLE else None
        member = Member(resource, facts.instance.title, state, quiet)
        self._members[resource] = (now, member)
        return member

    def _incomplete(self, facts: Facts, now: datetime) -> str | None:
        """Why a member may be missing: any place of its account that failed, or was last listed too long ago."""
        own = facts.instance.id
        for listing in self._inventory.listings.values():
            if listing.place.cloud != own.cloud or listing.place.account not in (own.account, "?"):
                continue
            if listing.failed is not None:
                return f"{listing.place} could not be listed: {listing.failed}"
            if not -MOST_AHEAD <= now - listing.listed_at <= facts.stale_after:
                return f"{listing.place} was last listed at {listing.listed_at:%Y-%m-%d %H:%M} UTC"
        return self._inventory.problems[0] if self._inventory.problems else None


def _place(instance: Instance) -> Place:
    return Place(instance.id.cloud, instance.id.account, instance.id.place)


def _ineligible(instance: Instance, configuration: Configuration) -> str | None:
    scope = configuration.scope
    if scope.given and not scope.what.matches(instance):
        return "outside [scope]"
    return None


def _running_since(instance: Instance, ledger: Ledger | None) -> datetime | None:
    """The start the cloud shows, else our own first sight; a start that we saw ourselves counts where the cloud shows an older one."""
    shown, ours = instance.launched_at, ledger.running_since if ledger is not None else None
    if shown is None or ours is None:
        return shown or ours
    saw_it_begin = ledger is not None and ours > ledger.first_seen_at
    return max(shown, ours) if saw_it_begin else shown


def _claimed(instance: Instance, configuration: Configuration) -> str | None:
    """
    Another's claim, or the lack of ours. Ours has to be exact; another's is read without regard to the key's case, so
    that "Reaper=team-b" protects as "reaper=team-b" does.
    """
    claim = configuration.scope.claim
    key, ours = (claim.key, claim.value) if claim is not None else (CLAIM_KEY, configuration.name)
    for name, value in instance.tags.items():
        if name.strip().casefold() == key.casefold() and value != ours:
            return f"claimed by {value} (tag {name})"
    if claim is not None and key not in instance.tags:
        return f"does not carry our claim {key}={ours}"
    return None
