"""
Google's services beside Compute Engine, asked by plain HTTP: prices, projects below a folder, keys, and what we may do.

Their clients would cost tens of megabytes each for a handful of reads. There is no way here to send anything else: a GET, and
the one POST that asks which permissions we have.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from reaper.clouds.gcp.asking import Asking
from reaper.errors import CloudError

Json = dict[str, Any]

BILLING, PROJECTS, KEYS = "cloudbilling", "cloudresourcemanager", "cloudkms"

MOST_PAGES = 200
"""A listing that is longer does not end. The whole price list has a dozen pages."""


class Answered(Exception):
    """A refusal, with what `answers` reads: status, reasons, text."""

    def __init__(self, status: int, body: Any) -> None:
        error = body.get("error") if isinstance(body, dict) else None
        error = error if isinstance(error, dict) else {}
        self.code = status
        self.message = str(error.get("message", "no reason given"))
        self.errors = [one for one in error.get("errors") or () if isinstance(one, dict)]
        details = [one for one in error.get("details") or () if isinstance(one, dict)]
        self.reason = next((str(one["reason"]) for one in details if one.get("reason")), None)
        super().__init__(self.message)


class Rest:
    """Thread-safe. Raises CloudError and its kinds only."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def get(self, service: str, path: str, doing: str, *, project: str = "", **query: str | int) -> Json:
        """``path``: behind the host ("v1/services/…"). ``project``: whose identity asks. Retried like any read."""
        clients = self._asking.clients

        def ask() -> Json:
            session, base, timeout = clients.session(service, project)
            found: Json = clients.retrying(lambda: _json(session.get(f"{base}/{quote(path, safe='/')}", params=query, timeout=timeout)))
            return found

        answer: Json = self._asking.call(doing, ask)
        return answer

    def pages(self, service: str, path: str, doing: str, *, project: str = "", **query: str | int) -> Iterator[Json]:
        """Each page as it comes. Raises CloudError where a listing leads back to where it was, or does not end."""
        token, seen = "", set[str]()
        for _ in range(MOST_PAGES):
            page = self.get(service, path, doing, project=project, **(query | ({"pageToken": token} if token else {})))
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
            if token in seen:
                raise CloudError(f"{doing}: the listing leads back to a page that was read")
            seen.add(token)
        raise CloudError(f"{doing}: the listing does not end")

    def allowed(self, resource: str, permissions: tuple[str, ...], doing: str, *, project: str = "") -> frozenset[str]:
        """Which of the permissions we have on "projects/p" or "folders/1". Asking changes nothing and needs no permission."""
        clients = self._asking.clients

        def ask() -> Json:
            session, base, timeout = clients.session(PROJECTS, project)
            body: Mapping[str, Any] = {"permissions": list(permissions)}
            address = f"{base}/v3/{quote(resource, safe='/')}:testIamPermissions"
            found: Json = clients.retrying(lambda: _json(session.post(address, json=body, timeout=timeout)))
            return found

        return frozenset(self._asking.call(doing, ask).get("permissions") or ())


def _json(answer: Any) -> Json:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.status_code >= 400:
        raise Answered(answer.status_code, body)
    if not isinstance(body, dict):
        raise TypeError("no JSON object")
    return body


