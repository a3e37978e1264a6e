"""Tells people through the log. Always accepts, so a policy that warns by it alone warns whoever reads the log."""

from reaper import log
from reaper.ports import Message

_LOG = log.get(__name__)


class LogNotifier:
    name = "log"

    def send(self, message: Message) -> None:
        _LOG.info(
            "people told",
            about=message.event,
            resource=None if message.resource is None else str(message.resource),
            name=message.name,
            action=message.action,
            because=message.because,
            policy=message.policy,
            owner=message.owner,
            due_at=None if message.due_at is None else message.due_at.isoformat(),
            keep_it=message.keep_it,
            people=list(message.people),
            notes=list(message.notes),
        )
