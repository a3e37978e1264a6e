"""How Google is asked: a client for the project, and whatever goes wrong as one of our own errors."""

from collections.abc import Callable
from typing import Any

from reaper.clouds.gcp.answers import NO_CREDENTIALS, translate
from reaper.clouds.gcp.clients import Clients


class Asking:
    """Thread-safe. Raises CloudError and its kinds only."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients

    def client(self, kind: str, project: str) -> Any:
        """By the library's own name of it ("Instances")."""
        return self.call(f"connect to gcp:{project}", lambda: self.clients.client(kind, project))

    def call(self, doing: str, ask: Callable[[], Any], *, verb: bool = False, where: str = "") -> Any:
        """``doing``, ``verb``, ``where``: as in `answers.translate`."""
        try:
            return ask()
        except Exception as error:  # whatever came up while a verb was out, the verb may have been carried out
            ours = translate(error, doing, verb=verb, where=where)
            if ours.code == NO_CREDENTIALS:
                self.clients.forget()
            raise ours from error
