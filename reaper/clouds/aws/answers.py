"""
What EC2 and the network answered, as our errors: by code and exception class, never by message text.

A verb differs from a read in one thing: once the request may have left this machine, no answer means that it may have
been carried out. Anything not known to have failed before sending counts as sent.
"""

from collections.abc import Iterator

from reaper.errors import (
    AnswerLost,
    CloudError,
    Denied,
    KeyUnusable,
    NoCapacity,
    NotFound,
    Protected,
    QuotaReached,
    Throttled,
    TooSoon,
    Unreachable,
    Unsupported,
    WrongState,
)
from reaper.model.kinds.instance import Hindrance

_CHECK_CREDENTIALS = "check the credentials and permissions that this process runs with"
_CHECK_KEYS = f"{_CHECK_CREDENTIALS}; if other regions answer, switch this region on for the account or leave it out of clouds.aws.regions"
_CHECK_ROLE = "allow it in the IAM policy of the role that this process runs with"
_RENEW = "renew the credentials that this process runs with"
_QUOTA = "raise the account's quota, or try again later"
_SLOW_DOWN = "it is asked again in the next cycle; other tools in the account share the limit"

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
_CODES: dict[str, tuple[type[CloudError], str]] = {
    **dict.fromkeys(
        (
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "EC2ThrottledException",
            "TooManyRequestsException",
            "BandwidthLimitExceeded",
            "SlowDown",
        ),
        (Throttled, _SLOW_DOWN),
    ),
    **dict.fromkeys(("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"), (Denied, _CHECK_ROLE)),
    # EC2 says AuthFailure both for bad keys and for a region that the account has not switched on
    **dict.fromkeys(("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "OptInRequired"), (Denied, _CHECK_KEYS)),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException"), (Denied, _RENEW)),
    **dict.fromkeys(
        (
            "SignatureDoesNotMatch",
            "InvalidSignatureException",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "InvalidAccessKeyId",
            "Blocked",
            "PendingVerification",
        ),
        (Denied, _CHECK_CREDENTIALS),
    ),
    "RequestExpired": (Denied, "set the clock of the machine that this process runs on, or renew its credentials"),
    "OperationNotPermitted": (Protected, "its owner has to lift the protection; this product never does"),
    "UnsupportedOperation": (Unsupported, "this machine cannot do that: leave it out, or let its owner end it"),
    "UnsupportedHibernationConfiguration": (Unsupported, "the machine was not launched with hibernation configured"),
    "Unsupported": (Unsupported, "its configuration is not supported where it is"),
    **dict.fromkeys(
        ("IncorrectInstanceState", "IncorrectState", "InvalidInstanceState", "IncorrectSpotRequestState"),
        (WrongState, "read it again"),
    ),
    **dict.fromkeys(
        (
            "InsufficientInstanceCapacity",
            "InsufficientCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "ReservationCapacityExceeded",
        ),
        (NoCapacity, "try again later, or in another zone"),
    ),
    **dict.fromkeys(
        (
            "InstanceLimitExceeded",
            "VcpuLimitExceeded",
            "MaxSpotInstanceCountExceeded",
            "VolumeLimitExceeded",
            "SnapshotLimitExceeded",
            "ResourceLimitExceeded",
            "LimitExceededException",
        ),
        (QuotaReached, _QUOTA),
    ),
    "TagLimitExceeded": (QuotaReached, "it has fifty tags already; remove one that nobody needs"),
    # https://docs.aws.amazon.com/ebs/latest/userguide/ebs-resource-quotas.html
    **dict.fromkeys(
        ("SnapshotCreationPerVolumeRateExceeded", "ConcurrentSnapshotLimitExceeded"), (TooSoon, "it is tried again in a later cycle")
    ),
    **dict.fromkeys(
        (
            "InvalidKMSKey.InvalidState",
            "KMSInvalidStateException",
            "KMSKeyNotAccessibleFault",
            "KMS.DisabledException",
            "KMS.InvalidStateException",
            "DisabledException",
            "KeyUnavailableException",
        ),
        (KeyUnusable, "enable the key, and allow kms:CreateGrant on it for AWS resources"),
    ),
    **dict.fromkeys(("VolumeInUse", "InvalidSnapshot.InUse", "SnapshotInUse"), (WrongState, "read it again")),
    **dict.fromkeys(
        (
            "InvalidInstanceID.NotFound",
            "InvalidInstanceID.Malformed",
            "InvalidVolume.NotFound",
            "InvalidSnapshot.NotFound",
            "NotFoundException",
            "ClusterNotFoundException",
            "TargetGroupNotFound",
            "LoadBalancerNotFound",
        ),
        (NotFound, "it is gone, or the id is wrong"),
    ),
}

# Why a start that was accepted did not end in a running machine, by StateReason.Code
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
_BOUNCES: dict[str, Hindrance] = {
    "Client.InternalError": Hindrance.KEY,  # "client error on launch": the usual cause is a key that could not be used
    "Client.InvalidKMSKey.InvalidState": Hindrance.KEY,
    "Client.VolumeLimitExceeded": Hindrance.QUOTA,
    "Client.InstanceLimitExceeded": Hindrance.QUOTA,
    "Server.InsufficientInstanceCapacity": Hindrance.CAPACITY,
    "Server.InsufficientHostCapacity": Hindrance.CAPACITY,
    "Server.InternalError": Hindrance.CLOUD,
}


def bounced(code: str | None) -> Hindrance | None:
    """What kept a machine from running that was started and fell back, by its state reason; None: nothing that is known to."""
    return _BOUNCES.get(code or "")


STALE_CREDENTIALS = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "NoCredentials"})
"""Codes after which new credentials have to be looked for from scratch; a client keeps the ones it was made with."""

_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "MetadataRetrievalError",
        "TokenRetrievalError",
        "NoAuthTokenError",
        "SSOError",
        "LoginError",
        "ProfileNotFound",
        "ConfigNotFound",
        "ConfigParseError",
        "UnknownCredentialError",
        "RefreshWithMFAUnsupportedError",
        "InfiniteLoopConfigError",
    }
)
_NEVER_SENT = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"})
_NEVER_VALID = frozenset(
    {"ParamValidationError", "NoRegionError", "InvalidRegionError", "UnknownEndpointError", "EndpointProviderError"}
)


def translate(error: Exception, doing: str, *, verb: bool) -> CloudError:
    """
    Our error for what boto3 raised. ``doing``: what was asked, with the id ("stop aws:…"); it begins the message.
    ``verb``: the call changes something, so an answer that did not come is AnswerLost.
    """
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        return _refusal(response, doing, verb)
    classes = frozenset(_names(error))
    if classes & _NO_CREDENTIALS:
        return Denied(f"{doing}: no usable AWS credentials ({type(error).__name__}); {_RENEW}", code="NoCredentials")
    if isinstance(error, RuntimeError) and not verb:  # botocore's "refreshed credentials are still expired" is one
        return Denied(f"{doing}: {_short(str(error))}; {_RENEW}", code="NoCredentials")
    if classes & _NEVER_SENT:
        return Unreachable(f"{doing}: no connection to AWS ({type(error).__name__}); check the network, the region's name and clouds.aws.endpoint")
    if classes & _NEVER_VALID or (isinstance(error, ValueError) and not verb):
        return CloudError(f"{doing}: {_short(str(error))}; check clouds.aws")
    if verb:
        return AnswerLost(f"{doing}: sent, and no answer came back ({type(error).__name__}); read it before anything else")
    return Unreachable(f"{doing}: AWS did not answer ({type(error).__name__}); it is asked again in the next cycle")


def _refusal(response: dict[str, object], doing: str, verb: bool) -> CloudError:
    error = response.get("Error")
    meta = response.get("ResponseMetadata")
    code = str(error.get("Code", "")) if isinstance(error, dict) else ""
    text = _short(str(error.get("Message", ""))) if isinstance(error, dict) else ""
    status = meta.get("HTTPStatusCode") if isinstance(meta, dict) else None
    known = _CODES.get(code)
    if known is None and code.startswith("InvalidInstanceID"):
        known = _CODES["InvalidInstanceID.NotFound"]
    if known is not None:
        kind, remedy = known
        return kind(f"{doing}: {code}: {text}; {remedy}", code=code)
    if not isinstance(status, int) or status >= 500 or status < 400:
        # the cloud broke while it worked on it: what became of the request is not known
        if verb:
            return AnswerLost(f"{doing}: AWS failed ({code}: {text}) and may have done it; read it before anything else", code=code)
        return Unreachable(f"{doing}: AWS failed ({code}: {text}); it is asked again in the next cycle", code=code)
    return CloudError(f"{doing}: {code}: {text}", code=code)


def _names(error: Exception) -> Iterator[str]:
    # by name, so that classes which only newer botocores have can be listed
    return (kind.__name__ for kind in type(error).__mro__)


def _short(text: str) -> str:
    """One line; the encoded authorization blob that EC2 appends (hundreds of characters) is cut off."""
    text = " ".join(text.partition("Encoded authorization failure message")[0].split()).rstrip(" .;")
    return text if len(text) <= 300 else f"{text[:299]}…"
