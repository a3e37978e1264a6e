"""
google-cloud-compute's clients, one per service and identity, made when first needed and shared by all threads.

All requests go through one adapter of ours: it bounds the time to connect, keeps the pace, and keeps the newest answer's
Date header for comparing clocks. Reads are retried here; a verb is sent once, because a retry after a lost answer would
be a second stop that nobody decided.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from reaper.clouds.cloud_time import CloudTime
from reaper.clouds.gcp.answers import retryable
from reaper.clouds.gcp.pace import Pace
from reaper.ports import Clock

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""What IAM then narrows down to the roles; the compute scopes alone cannot impersonate."""

HOW_TO_INSTALL = "install Google's client with: pip install 'idle-reaper[gcp]'"


_SESSION = "(session)"


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    Of one call, in seconds. ``reads_s``: a read with all its retries; ``stop_s`` and ``start_s``: how long an accepted
    operation is watched for an early failure (a stock-out is told within seconds), every ``poll_s``. ``connections`` a client.
    """

    connect_s: float = 5
    read_s: float = 30
    reads_s: float = 40
    stop_s: float = 4
    start_s: float = 15
    poll_s: float = 1
    first_retry_s: float = 0.5
    connections: int = 10


def default_credentials(principal: str | None) -> Any:
    """The process's own credentials, found the way every Google tool finds them; ``principal``: the service account to impersonate."""
    import google.auth

    own, _ = google.auth.default(scopes=[SCOPE])
    if principal is None:
        return own
    from google.auth import impersonated_credentials

    return impersonated_credentials.Credentials(source_credentials=own, target_principal=principal, target_scopes=[SCOPE], lifetime=3600)


def no_credentials(principal: str | None) -> Any:
    """For an endpoint on this very machine, which is a fake."""
    from google.auth.credentials import AnonymousCredentials

    return AnonymousCredentials()


class Clients:
    """
    Thread-safe. ``endpoint``: where Compute is, None for Google's own; ``service_account``: whom to impersonate, in
    which "{project}" stands for the project's id. ``forget`` drops everything, so that the next call looks for credentials anew.
    """

    def __init__(
        self,
        *,
        endpoint: str | None,
        service_account: str | None,
        clock: Clock,
        bounds: Bounds,
        credentials: Callable[[str | None], Any] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._local = endpoint is not None and _loopback(endpoint)
        self._service_account = service_account
        self._clock = clock
        self._bounds = bounds
        self._credentials = credentials if credentials is not None else no_credentials if self._local else default_credentials
        self._pace = Pace(clock) if pace is None else pace
        self._lock = threading.RLock()
        self._found: dict[str | None, Any] = {}
        self._made: dict[tuple[str, str | None], Any] = {}
        self.time = CloudTime(clock)

    @staticmethod
    def load() -> Any:
        """The library itself. Seconds at the first time. Raises ImportError where it is not installed."""
        from google.cloud import compute_v1

        return compute_v1

    def client(self, kind: str, project: str) -> Any:
        """A client by the library's own name of it ("Instances"), for the project's identity."""
        return self._kept(kind, project, self._make)

    def session(self, service: str, project: str) -> tuple[Any, str, float]:
        """(an HTTP session, the address to put before a path, seconds) for another service of Google's ("cloudbilling"), same identity and pace."""
        base = self._endpoint if self._endpoint is not None and self._local else f"https://{service}.googleapis.com"
        return self._kept(_SESSION, project, self._open), base.rstrip("/"), self._bounds.read_s

    def retrying(self, ask: Callable[[], Any]) -> Any:
        return self.read()["retry"](ask)()

    def principal(self, project: str) -> str | None:
        """Whom to impersonate. One account for all where no project is asked for that its name depends on."""
        account = self._service_account
        if account is None or (not project and "{project}" in account):
            return None
        # in addresses of service accounts a domain comes behind the project: "reaper@research.example.com.iam…"
        return account.replace("{project}", ".".join(reversed(project.split(":"))))

    def _kept(self, kind: str, project: str, make: Callable[[str, Any], Any]) -> Any:
        principal = self.principal(project)
        with self._lock:
            key = (kind, principal)
            if key not in self._made:
                if principal not in self._found:
                    self._found[principal] = self._credentials(principal)
                self._made[key] = make(kind, self._found[principal])
            return self._made[key]

    def _open(self, kind: str, credentials: Any) -> Any:
        from google.auth.transport.requests import AuthorizedSession

        session = AuthorizedSession(credentials)
        session.headers["User-Agent"] = "idle-reaper"
        self._mount(session)
        return session

    def forget(self) -> None:
        with self._lock:
            self._found.clear()
            self._made.clear()

    def read(self) -> dict[str, Any]:
        """How a reading call is made: retried while that makes sense, bounded in time."""
        from google.api_core.retry import Retry

        first = self._bounds.first_retry_s
        return {
            "retry": Retry(predicate=retryable, initial=first, maximum=max(first, 5), multiplier=2, timeout=self._bounds.reads_s),
            "timeout": self._bounds.read_s,
        }

    def once(self, *, quickly: bool = False) -> dict[str, Any]:
        """How a verb is sent. ``quickly``: for a read just before it."""
        return {"retry": None, "timeout": min(self._bounds.read_s, self._bounds.connect_s) if quickly else self._bounds.read_s}

    def _make(self, kind: str, credentials: Any) -> Any:
        from google.api_core.client_options import ClientOptions
        from google.api_core.gapic_v1.client_info import ClientInfo

        options = ClientOptions() if self._endpoint is None else ClientOptions(api_endpoint=self._endpoint)
        client = getattr(self.load(), f"{kind}Client")(
            credentials=credentials, client_options=options, client_info=ClientInfo(user_agent="idle-reaper")
        )
        session = client.transport._session  # no public way to it; a test holds every version of the library to this one
        self._mount(session)
        return client

    def _mount(self, session: Any) -> None:
        adapter = _adapter(self._bounds, self._pace.take, self.time.answered)
        session.mount("https://", adapter)
        session.mount("http://", adapter)


def _adapter(bounds: Bounds, take: Callable[[str], None], answered: Callable[[str | None], None]) -> Any:
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        def send(self, request: Any, stream: bool = False, timeout: Any = None, *args: Any, **more: Any) -> Any:
            take(_project(request.url))
            read_s = timeout[1] if isinstance(timeout, tuple) else timeout
            answer = super().send(request, stream, (bounds.connect_s, bounds.read_s if read_s is None else read_s), *args, **more)
            answered(answer.headers.get("Date"))
            return answer

    return Adapter(pool_maxsize=bounds.connections, max_retries=0)


def _project(url: str) -> str:
    """Whose quota a request counts on."""
    _, _, rest = urlsplit(url).path.partition("/projects/")
    return unquote(rest.partition("/")[0])


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
