"""
Who am I: the resource id of this machine, from the configuration or from EC2's metadata service.

Only session tokens (IMDSv2) are used, with short time limits. No answer means *not
known*: it is asked again in the background, and never replaced by a host name or by
what another boot remembered, because a cloned image carries both.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Callable, Optional

from agent.clock import Clock
from agent.http import Connection, HttpError
from agent.readings import Log
from agent.report import Value, is_resource_id

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
_TOKEN_PATH = "/latest/api/token"
_DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
TIMEOUT_S = 2.0
_FIRST_RETRY_S, _MOST_RETRY_S = 5.0, 300.0


class IdentityError(Exception):
    """The metadata service did not say who we are. The message has the cause and the remedy."""


@dataclass(frozen=True, eq=False, repr=False)
class Identity(Value):
    """``instance_type`` is None when the identity comes from the configuration. ``source``: config, metadata or cache."""

    resource: str
    instance_type: Optional[str] = None
    source: str = "config"


def ask_metadata(endpoint: str, timeout_s: float = TIMEOUT_S) -> Identity:
    """Ask EC2's metadata service. Raises IdentityError. Proxies and redirects are not followed: it is on this machine's link."""
    connection = Connection(endpoint, timeout_s, timeout_s)
    try:
        token = _ask(connection, "PUT", _TOKEN_PATH, {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        document = _ask(connection, "GET", _DOCUMENT_PATH, {"X-aws-ec2-metadata-token": token})
    except (OSError, HttpError) as error:
        raise IdentityError(
            "metadata service %s: no answer (%s: %s); on another cloud set resource in the configuration"
            % (endpoint, type(error).__name__, error)
        ) from error
    finally:
        connection.close()
    return _identity(endpoint, document)


def _ask(connection: Connection, method: str, path: str, headers: "dict[str, str]") -> str:
    answer = connection.request(method, path, headers)
    if answer.status != 200:
        raise IdentityError(
            "metadata service: %s %s answered %d; enable the instance metadata service with tokens" % (method, path, answer.status)
        )
    return answer.body.decode("ascii", "replace").strip()


def _identity(endpoint: str, document: str) -> Identity:
    try:
        facts = json.loads(document)
        resource = "aws:%s:%s:instance:%s" % (facts["accountId"], facts["region"], facts["instanceId"])
        kind = facts.get("instanceType")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IdentityError("metadata service %s: not an identity document (%r); is this EC2?" % (endpoint, error)) from error
    if not is_resource_id(resource):
        raise IdentityError("metadata service %s: gives %r, which is not a resource id" % (endpoint, resource[:200]))
    return Identity(resource, kind if isinstance(kind, str) else None, "metadata")


class Who:
    """
    Keeps asking in the background until there is an answer. ``current`` never blocks;
    None: not known yet. A ``remembered`` identity (of this very boot) is used until
    the service answers.
    """

    def __init__(
        self, ask: Callable[[], Identity], stop: threading.Event, clock: Clock, log: Log, remembered: Optional[Identity] = None
    ) -> None:
        self._ask, self._stop, self._clock, self._log = ask, stop, clock, log
        self._known = remembered
        self._thread = threading.Thread(target=self._run, name="identity", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def current(self) -> Optional[Identity]:
        return self._known

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stop.is_set():
            try:
                self._known = self._ask()
            except IdentityError as error:
                self._log.warning("identity not known", because=str(error), retry_s=retry_s)
                self._clock.wait(self._stop, retry_s)
                retry_s = min(2 * retry_s, _MOST_RETRY_S)
            else:
                self._log.info("identity known", resource=self._known.resource)
                return
