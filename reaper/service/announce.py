"""Tells people: each channel in isolation, any one's acceptance counts, and what nobody accepted is not a warning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper import log
from reaper.decide.findings import span_text
from reaper.errors import NotDelivered
from reaper.model.decision import Finding, FindingKind
from reaper.model.kinds.instance import Instance
from reaper.model.mark import Mark
from reaper.model.policy import Configuration, Policy, WebhookChannel, owner_of
from reaper.model.signal import Observation, Person
from reaper.ports import Message, Notifier

_log = log.get(__name__)


@dataclass(slots=True)
class Announcer:
    """``notifiers`` by the names that policies use in ``via``; ``build`` makes them anew when the configuration's channels change."""

    notifiers: Mapping[str, Notifier]
    build: Callable[[Configuration], Mapping[str, Notifier]] | None = None
    _channels: Mapping[str, WebhookChannel] | None = None

    def follow(self, configuration: Configuration) -> None:
        """A warning sent where the newest configuration no longer points would count as accepted."""
        if self.build is not None and configuration.channels != self._channels:
            self.notifiers, self._channels = self.build(configuration), configuration.channels

    def send(self, message: Message, via: Sequence[str]) -> str | None:
        """The first channel that accepted it, all of them tried; None: no channel did."""
        first: str | None = None
        for name in via:
            notifier = self.notifiers.get(name)
            if notifier is None:
                _log.warning("channel not configured", channel=name, told=message.event)
                continue
            try:
                notifier.send(message)
            except NotDelivered as error:
                _log.warning("message not delivered", channel=name, told=message.event, resource=str(message.resource), because=str(error))
                continue
            except Exception:  # noqa: BLE001 - a broken channel has accepted nothing, and must not end the cycle or silence the next channel
                _log.exception("channel failed", channel=name, told=message.event, resource=str(message.resource))
                continue
            first = first or name
        return first


def warning(
    mark: Mark, instance: Instance, policy: Policy, due_at: datetime | None, now: datetime, newest: Observation | None = None,
    findings: Sequence[Finding] = (),
) -> Message:  # fmt: skip
    """
    What an owner is told before a machine goes, and how to keep it. The owner is who the tags say; who is on the machine, as
    ``newest`` tells, is named beside and never instead. ``findings``: what the rules noted is told as well.
    """
    return Message(
        event="warned", resource=instance.id, name=instance.title, action=mark.action.value, because=mark.because, at=now,
        policy=policy.name, owner=owner_of(instance, policy.owner), due_at=due_at,
        keep_it=f'reaper snooze {instance.id} --for 4h --reason "..."', people=on_it(newest),
        notes=tuple(finding.because for finding in findings if finding.kind is FindingKind.NOTE),
    )  # fmt: skip


def on_it(newest: Observation | None) -> tuple[str, ...]:
    """A line for each person on the machine. An unverified voice names nobody."""
    if newest is None or not newest.verified:
        return ()
    return tuple(person_text(person) for person in newest.people or ())


def person_text(person: Person) -> str:
    what = "has a process on a GPU" if person.how == "gpu" else "is logged in"
    typed = f", typed {span_text(timedelta(seconds=person.idle_s))} ago" if person.idle_s is not None else ""
    number = f" ({person.uid})" if person.uid is not None and str(person.uid) != person.user else ""
    return f"{person.user}{number} {what}{typed}"


def news(event: str, mark: Mark, instance: Instance | None, policy: Policy | None, because: str, now: datetime) -> Message:
    """What became of a mark: cleared, done, failed."""
    owner = owner_of(instance, policy.owner) if instance is not None and policy is not None else None
    name = instance.title if instance is not None else mark.resource.native
    return Message(event, mark.resource, name, mark.action.value, because, now, policy=mark.policy, owner=owner)
