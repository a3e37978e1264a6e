"""
boto3 clients, one per service, region and purpose, made when first needed and shared by all threads.

Reads retry adaptively and slow down when throttled. Verbs are sent once: a retry after a lost answer would be a second
stop that nobody decided. The newest answer's Date header is kept, for comparing clocks.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws.listing import read_listing
from reaper.clouds.cloud_time import CloudTime

if TYPE_CHECKING:
    from boto3.session import Session

HOME_REGION = "us-east-1"
"""Where an account and its regions are asked for when neither the settings nor the environment names a region."""

# Switched on in every account, by https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html; all
# others have to be switched on first, and an account cannot be asked anything in one that is not.
ALWAYS_ON = frozenset((
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ap-south-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
    "ap-southeast-1", "ap-southeast-2", "ca-central-1", "eu-central-1", "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "sa-east-1",
    "us-gov-west-1", "us-gov-east-1", "cn-north-1", "cn-northwest-1",
))  # fmt: skip


def home_of(regions: tuple[str, ...]) -> str | None:
    """The first of them that no account can have switched off, else the first; None where none is named."""
    return min(regions, key=lambda region: region not in ALWAYS_ON, default=None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    Of one call. Seconds; ``read_attempts`` counts the first try too (5: EC2's request bucket refills within seconds);
    ``connections`` a client, enough for the listing beside a handful of fresh reads.
    """

    connect_s: float = 5
    read_s: float = 30
    read_attempts: int = 5
    connections: int = 10


def default_session() -> "Session":
    """The process's own credentials, found the way every AWS tool finds them."""
    from boto3.session import Session  # half a second; loaded where a cloud is used

    return Session()


class Clients:
    """Of one account. Thread-safe. ``forget`` drops everything, so that the next call looks for credentials anew."""

    def __init__(self, *, endpoint: str | None, regions: tuple[str, ...], time: CloudTime, bounds: Bounds, session: Callable[[], "Session"]) -> None:
        self._endpoint = endpoint
        self._regions = regions
        self._time = time
        self._bounds = bounds
        self._new_session = session
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._made: dict[tuple[str, str, bool], Any] = {}

    def _answered(self, response_dict: dict[str, Any] | None = None, **_: object) -> None:
        """botocore's event for every answer, refusals and those that are retried included."""
        self._time.answered((response_dict or {}).get("headers", {}).get("date"))

    @property
    def home(self) -> str:
        """A region that can be asked about the whole account. The settings win, then the environment."""
        return home_of(self._regions) or self._open().region_name or HOME_REGION

    def reads(self, region: str, service: str = "ec2") -> Any:
        return self._client(service, region, verb=False)

    def verbs(self, region: str, service: str = "ec2") -> Any:
        return self._client(service, region, verb=True)

    def let_go(self, region: str, service: str) -> None:
        """Of what is asked seldom: a client kept for each of many accounts and regions is a fifth of a megabyte each time. Not while it is in use."""
        with self._lock:
            client = self._made.pop((service, region, False), None)
        if client is not None:
            client.close()

    def forget(self) -> None:
        with self._lock:
            self._session = None
            self._made.clear()

    def _open(self) -> "Session":
        with self._lock:
            if self._session is None:
                session = self._new_session()
                session.events.register("response-received", self._answered, unique_id="reaper-date")
                session.events.register("before-parse.ec2.DescribeInstances", read_listing, unique_id="reaper-listing")
                self._session = session
            return self._session

    def _client(self, service: str, region: str, *, verb: bool) -> Any:
        from botocore.config import Config  # here for the reason in default_session

        key = (service, region, verb)
        with self._lock:  # making clients from one session is not thread-safe; using them is
            if key not in self._made:
                attempts = 1 if verb else self._bounds.read_attempts
                config = Config(
                    retries={"mode": "standard" if verb else "adaptive", "total_max_attempts": attempts},
                    connect_timeout=self._bounds.connect_s,
                    read_timeout=self._bounds.read_s,
                    max_pool_connections=self._bounds.connections,
                    user_agent_extra="idle-reaper",
                )
                session: Any = self._open()
                self._made[key] = session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)
            return self._made[key]
