"""How people are told."""

from reaper.notify.log import LogNotifier
from reaper.notify.webhook import WebhookNotifier

__all__ = ["LogNotifier", "WebhookNotifier"]
