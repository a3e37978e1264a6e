"""
What Google and the network answered, as our errors: by status, reason and exception class, never by message text.

A verb differs from a read in one thing: once the request may have left this machine, no answer means that it may have
been carried out. Anything not known to have failed before sending counts as sent. An operation that is DONE has only
ended: what it ended with stands in its error.
"""

from collections.abc import Iterator
from typing import Any

from reaper.errors import (
    AnswerLost,
    CloudError,
    Denied,
    KeyUnusable,
    NoCapacity,
    NotFound,
    QuotaReached,
    Throttled,
    Unreachable,
    Unsupported,
    WrongState,
)

_CHECK_ROLE = "grant the roles in deploy/iam/gcp in that project to the identity that this process runs with"
_RENEW = "renew the credentials that this process runs with (gcloud auth application-default login, or the service account)"
_ENABLE = "enable the Compute Engine API in that project, or leave the project out of clouds.gcp.projects"
_SLOW_DOWN = "it is asked again in the next cycle; everything in the project shares the limit"
_LATER = "try again later, or in another zone"
_QUOTA = "raise the project's quota, or try again later; Google also says this where the zone itself is sold out"
_AGAIN = "read it again"
_KEY = "enable the key, and let the project's Compute Engine service agent use it"

# By the reason in Google's error, in lower case. https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-error-codes
_REASONS: dict[str, tuple[type[CloudError], str]] = {
    **dict.fromkeys(("ratelimitexceeded", "userratelimitexceeded", "rate_limit_exceeded", "operation_rate_exceeded"), (Throttled, _SLOW_DOWN)),
    **dict.fromkeys(("resource_operation_rate_exceeded", "concurrent_operations_quota_exceeded"), (Throttled, _SLOW_DOWN)),
    **dict.fromkeys(("accessnotconfigured", "service_disabled"), (Denied, _ENABLE)),
    **dict.fromkeys(("forbidden", "permissions_error", "iam_permission_denied", "insufficientpermissions", "billing_disabled"), (Denied, _CHECK_ROLE)),
    **dict.fromkeys(("autherror", "required", "access_token_scope_insufficient"), (Denied, _RENEW)),
    **dict.fromkeys(("quotaexceeded", "quota_exceeded", "limitexceeded", "limit_exceeded"), (QuotaReached, _QUOTA)),
    **dict.fromkeys(("stockout", "resource_availability", "resource_pool_exhausted"), (NoCapacity, _LATER)),
    **dict.fromkeys(("resourcenotready", "resource_not_ready", "resource_in_use_by_another_resource", "resourceinusebyanotherresource"), (WrongState, _AGAIN)),
    **dict.fromkeys(("conditionnotmet", "failedprecondition", "condition_not_met"), (WrongState, _AGAIN)),
    **dict.fromkeys(("unsupported_operation", "unsupportedoperation"), (Unsupported, "this machine cannot do that: leave it out")),
    **dict.fromkeys(("notfound", "resource_not_found"), (NotFound, "it is gone, or the id is wrong")),
    **dict.fromkeys(("alreadyexists", "resource_already_exists"), (WrongState, _AGAIN)),
}
_STOCKOUTS = ("zone_resource_pool_exhausted", "region_resource_pool_exhausted", "resource_pool_exhausted")
"""Beginnings: Google adds endings to them ("_WITH_DETAILS")."""

_KEYS = ("kms", "cloudkms", "cloud_kms", "cmek", "crypto_key", "cryptokey")
"""Beginnings of what is wrong with the key of a disk, which Google writes in many ways."""

_STATUSES: dict[int, tuple[type[CloudError], str]] = {
    401: (Denied, _RENEW),
    403: (Denied, _CHECK_ROLE),
    404: (NotFound, "it is gone, or the id is wrong"),
    409: (WrongState, _AGAIN),
    412: (WrongState, _AGAIN),
    429: (Throttled, _SLOW_DOWN),
}
SWITCHED_OFF = frozenset({"accessnotconfigured", "service_disabled"})
"""Of a project where the API is not switched on."""

NO_CREDENTIALS = "NoCredentials"
_CREDENTIALS = frozenset({"DefaultCredentialsError", "RefreshError", "ReauthFailError", "MalformedError", "GoogleAuthError", "InvalidOperation"})
_NEVER_SENT = frozenset({"ConnectTimeout", "ConnectTimeoutError", "NewConnectionError", "NameResolutionError", "ProxyError", "MissingSchema", "InvalidURL"})


def translate(error: Exception, doing: str, *, verb: bool, where: str = "") -> CloudError:
    """
    Our error for what the library raised. ``doing``: what was asked, with the id ("stop gcp:…"); it begins the message.
    ``verb``: the call changes something, so an answer that did not come is AnswerLost. ``where``: the zone, for the remedy.
    """
    if isinstance(error, CloudError):
        return error
    if isinstance(error, ImportError):
        return CloudError(f"{doing}: {error}; install Google's client with: pip install 'idle-reaper[gcp]'")
    status = getattr(error, "code", None)
    if isinstance(status, int) and hasattr(error, "errors"):
        return _refusal(error, int(status), doing, verb, where)
    classes = frozenset(_names(error))
    if "RetryError" in classes and error.__cause__ is not None and isinstance(error.__cause__, Exception):
        return translate(error.__cause__, doing, verb=verb, where=where)  # what it was that did not get better
    if "TransportError" in classes:  # of fetching a token: our own request was not sent
        return Unreachable(f"{doing}: no token could be fetched ({_short(str(error))}); check the network and the metadata server")
    if classes & _CREDENTIALS:
        return Denied(f"{doing}: no usable Google credentials ({_short(str(error))}); {_RENEW}", code=NO_CREDENTIALS)
    if _never_sent(error):
        return Unreachable(f"{doing}: no connection to Google ({type(error).__name__}); check the network and clouds.gcp.endpoint")
    if verb:
        return AnswerLost(f"{doing}: sent, and no answer came back ({type(error).__name__}); read it before anything else")
    if isinstance(error, ValueError | TypeError | AttributeError) and "RequestException" not in classes:
        return CloudError(f"{doing}: the answer is not understood: {_short(str(error))}")
    return Unreachable(f"{doing}: Google did not answer ({type(error).__name__}); it is asked again in the next cycle")


def retryable(error: BaseException) -> bool:
    """Whether a read that met this may be tried again at once: overload, a broken backend, a connection that ended."""
    status = getattr(error, "code", None)
    if isinstance(status, int) and hasattr(error, "errors"):
        return status == 429 or status >= 500 or (status == 403 and any(_kind(reason) is Throttled for reason in _reasons(error)))
    classes = frozenset(_names(error))
    return "TransportError" in classes or "RequestException" in classes and not classes & {"MissingSchema", "InvalidURL"}


def operation_failure(operation: Any, doing: str, where: str) -> CloudError | None:
    """
    Why an operation that is DONE failed; None: it did not say that it did. Several errors: the first that we know.

    A failure may also come without any error in it, as an HTTP status alone.
    """
    errors = list(operation.error.errors) if operation.error else []
    status = int(operation.http_error_status_code or 0)
    if not errors and status < 400:
        return None
    known = next((error for error in errors if _known(error.code) is not None), errors[0] if errors else None)
    code = known.code if known is not None else str(status)
    text = _short(known.message if known is not None else operation.http_error_message or "no reason given")
    reasons = {str(detail.error_info.reason) for error in errors for detail in error.error_details if detail.error_info and detail.error_info.reason}
    kind, remedy = _known(code) or next((k for k in map(_known, sorted(reasons)) if k is not None), None) or _STATUSES.get(status, (CloudError, ""))
    if "resource_availability" in {reason.lower() for reason in reasons} or "stockout" in {reason.lower() for reason in reasons}:
        kind, remedy = NoCapacity, _LATER  # also where the code says that it was the quota
    return kind(_sentence(f"{doing}: its operation ended with {code}", text, remedy, kind, where), code=code)


def _refusal(error: Any, status: int, doing: str, verb: bool, where: str) -> CloudError:
    reasons = _reasons(error)
    code = next((reason for reason in reasons if reason.lower() in SWITCHED_OFF), reasons[0] if reasons else str(status))
    text = _short(str(getattr(error, "message", "")).partition(": ")[2] or str(error))
    if status >= 500 or status < 400:
        stockout = next((reason for reason in reasons if _kind(reason) is NoCapacity), None)
        if stockout is not None:  # told in so many words: nothing was begun
            return NoCapacity(_sentence(f"{doing}: {stockout}", text, _LATER, NoCapacity, where), code=stockout)
        # the cloud broke while it worked on it: what became of the request is not known
        if verb:
            return AnswerLost(f"{doing}: Google failed ({code}: {text}) and may have done it; read it before anything else", code=code)
        return Unreachable(f"{doing}: Google failed ({code}: {text}); it is asked again in the next cycle", code=code)
    known = _known(code) or next((k for k in map(_known, reasons) if k is not None), None) or _STATUSES.get(status)
    kind, remedy = known if known is not None else (CloudError, "")
    return kind(_sentence(f"{doing}: {code}", text, remedy, kind, where), code=code)


def _sentence(what: str, text: str, remedy: str, kind: type[CloudError], where: str) -> str:
    zone = f" (zone {where})" if kind in (NoCapacity, QuotaReached) and where else ""
    return f"{what}{zone}: {text}" + (f"; {remedy}" if remedy else "")


def _known(code: str) -> tuple[type[CloudError], str] | None:
    lower = code.lower()
    if lower.startswith(_STOCKOUTS):
        return NoCapacity, _LATER
    return (KeyUnusable, _KEY) if lower.startswith(_KEYS) else _REASONS.get(lower)


def _kind(code: str) -> type[CloudError] | None:
    known = _known(code)
    return None if known is None else known[0]


def _reasons(error: Any) -> list[str]:
    found = [str(item.get("reason", "")) for item in error.errors or () if isinstance(item, dict)]
    more = getattr(error, "reason", None)  # of google.rpc.ErrorInfo, the finer one
    return [reason for reason in (*found, more) if reason]


def _never_sent(error: BaseException) -> bool:
    """requests wraps the reason for which no connection came about; one that was there and ended is another matter."""
    seen: list[Any] = [error]
    for _ in range(4):
        inner = [getattr(one, "reason", None) for one in seen] + [arg for one in seen for arg in getattr(one, "args", ())]
        if any(name in _NEVER_SENT for one in seen if isinstance(one, BaseException) for name in _names(one)):
            return True
        seen = [one for one in inner if isinstance(one, BaseException)]
    return False


def _names(error: BaseException) -> Iterator[str]:
    # by name, so that the library is not loaded for its exceptions' sake
    return (kind.__name__ for kind in type(error).__mro__)


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(" .;")
    return text if len(text) <= 300 else f"{text[:299]}…"
