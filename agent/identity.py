"""
Who am I: the resource id of this machine, from the configuration or from the metadata service of EC2 or Google Cloud.

Both services have the same link-local address, so both are asked, and exactly one has to
answer as itself: EC2 with a session token (IMDSv2 only) and no header of Google's, Google
with its header on every answer. A proxy that answers for both, or for another cloud than
the one that made this machine's firmware, is told and believed by nobody. No answer means
*not known*: it is asked again in the background, and never replaced by a host name or by
what another boot remembered, because a cloned image carries both.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Callable, Optional

from agent.clock import Clock
from agent.http import Connection, HttpError, Response
from agent.readings import Log
from agent.report import Value, is_resource_id

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
_TOKEN_PATH = "/latest/api/token"
_DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
# https://cloud.google.com/compute/docs/metadata/querying-metadata
_GOOGLE_PATH = "/computeMetadata/v1/"
_GOOGLE = {"Metadata-Flavor": "Google"}
_LINK_LOCAL = ("//169.254.", "//[fd00:ec2::254]", "//[fd20:ce::254]", "//metadata.google.internal")
_MAKER_FILE = "/sys/class/dmi/id/sys_vendor"
_MAKERS = {"Amazon EC2": "aws", "Google": "gcp"}
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


def ask_metadata(endpoint: str, timeout_s: float = TIMEOUT_S, made_by: Optional[str] = None) -> Identity:
    """
    Ask the metadata service. ``made_by``: the cloud of this machine's firmware ("aws", "gcp"); None: looked up where the
    address is a link-local one. Raises IdentityError. Proxies and redirects are not followed: it is on this machine's link.
    """
    if made_by is None and any(start in endpoint for start in _LINK_LOCAL):
        made_by = maker()
    connection = Connection(endpoint, timeout_s, timeout_s)
    try:
        found = _either(endpoint, connection)
    except (OSError, HttpError) as error:
        raise IdentityError(
            "metadata service %s: no answer (%s: %s); on another cloud set resource in the configuration"
            % (endpoint, type(error).__name__, error)
        ) from error
    finally:
        connection.close()
    cloud = found.resource.partition(":")[0]
    if made_by is not None and made_by != cloud:
        raise IdentityError(
            "metadata service %s answers for %s on a machine of %s: a proxy stands before it; set resource in the configuration"
            % (endpoint, cloud, made_by)
        )
    return found


def maker(file: str = _MAKER_FILE) -> Optional[str]:
    """The cloud that this machine's firmware names; None: another, or not readable."""
    try:
        with open(file, encoding="ascii", errors="replace") as lines:
            return _MAKERS.get(lines.read(64).strip())
    except OSError:
        return None


def _either(endpoint: str, connection: Connection) -> Identity:
    """EC2's token first: a question without one would be counted as a use of its old protocol."""
    token = connection.request("PUT", _TOKEN_PATH, {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    if token.status != 200 or _is_google(token):
        first = connection.request("GET", _GOOGLE_PATH + "instance/id", _GOOGLE)
        if _is_google(first):
            return _google(endpoint, connection, first)
        _text("PUT", _TOKEN_PATH, token)  # says what was wrong with it
        raise IdentityError("metadata service %s: not EC2's answer to PUT %s, nor Google's" % (endpoint, _TOKEN_PATH))
    with_token = {"X-aws-ec2-metadata-token": _text("PUT", _TOKEN_PATH, token)}
    found = _ec2(endpoint, _text("GET", _DOCUMENT_PATH, connection.request("GET", _DOCUMENT_PATH, with_token)))
    if _is_google(connection.request("GET", _GOOGLE_PATH + "instance/id", {**with_token, **_GOOGLE})):
        raise IdentityError(
            "metadata service %s answers for EC2 and for Google Cloud: a proxy stands before it; set resource in the configuration" % endpoint
        )
    return found


def _is_google(answer: Response) -> bool:
    return answer.headers.get("metadata-flavor") == "Google"


def _text(method: str, path: str, answer: Response) -> str:
    if answer.status != 200:
        raise IdentityError(
            "metadata service: %s %s answered %d; enable the instance metadata service with tokens" % (method, path, answer.status)
        )
    return answer.body.decode("ascii", "replace").strip()


def _google(endpoint: str, connection: Connection, first: Response) -> Identity:
    """Four short answers, since the whole would bring start-up scripts and keys along."""
    said = [_text("GET", "instance/id", first)]
    for path in ("project/project-id", "instance/zone", "instance/machine-type"):
        answer = connection.request("GET", _GOOGLE_PATH + path, _GOOGLE)
        if not _is_google(answer):
            raise IdentityError("metadata service %s: the answer to %s is not Google's; is there a proxy before it?" % (endpoint, path))
        said.append(_text("GET", path, answer))
    number, project, zone, kind = said
    resource = "gcp:%s:%s:instance:%s" % (project, zone.rpartition("/")[2], number)
    if not number.isdigit() or not is_resource_id(resource):
        raise IdentityError("metadata service %s: gives %r, which is not a resource id" % (endpoint, resource[:200]))
    return Identity(resource, kind.rpartition("/")[2] or None, "metadata")


def _ec2(endpoint: str, document: str) -> Identity:
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
