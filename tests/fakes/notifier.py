"""A channel that keeps what it was given and refuses on request."""

from reaper.errors import NotDelivered
from reaper.ports import Message


class FakeNotifier:
    def __init__(self, name: str = "log") -> None:
        self.name = name
        self.messages: list[Message] = []
        self.refusing = False

    def send(self, message: Message) -> None:
        if self.refusing:
            raise NotDelivered(f"{self.name} refuses")
        self.messages.append(message)

    def told(self, event: str) -> list[Message]:
        return [message for message in self.messages if message.event == event]
