"""Which of our errors each code and each silence becomes."""

import pytest
from botocore import exceptions as theirs
from botocore.parsers import ResponseParserError

from reaper.clouds.aws.answers import bounced, translate
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

STOP = "stop aws:123456789012:eu-west-1:instance:i-0abc"
URL = "https://ec2.eu-west-1.amazonaws.com/"


def refusal(code: str, status: int = 400, message: str = "their words") -> theirs.ClientError:
    return theirs.ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, "StopInstances")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("Throttling", 400, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("UnauthorizedOperation", 403, Denied),
        ("AuthFailure", 401, Denied),
        ("AccessDenied", 403, Denied),
        ("OptInRequired", 401, Denied),
        ("ExpiredToken", 400, Denied),
        ("RequestExpired", 400, Denied),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidInstanceID.Malformed", 400, NotFound),
        ("InvalidInstanceID.NotLinkable", 400, NotFound),
        ("IncorrectInstanceState", 400, WrongState),
        ("IncorrectState", 400, WrongState),
        ("OperationNotPermitted", 400, Protected),
        ("UnsupportedOperation", 400, Unsupported),
        ("UnsupportedHibernationConfiguration", 400, Unsupported),
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("InsufficientHostCapacity", 500, NoCapacity),
        ("VcpuLimitExceeded", 400, QuotaReached),
        ("InstanceLimitExceeded", 400, QuotaReached),
        ("TagLimitExceeded", 400, QuotaReached),
        ("SnapshotCreationPerVolumeRateExceeded", 400, TooSoon),
        ("ConcurrentSnapshotLimitExceeded", 400, TooSoon),
        ("ResourceLimitExceeded", 400, QuotaReached),
        ("VolumeInUse", 400, WrongState),
        ("InvalidVolume.NotFound", 400, NotFound),
        ("InvalidSnapshot.NotFound", 400, NotFound),
        ("KMSInvalidStateException", 400, KeyUnusable),
        ("NotFoundException", 400, NotFound),
        ("SomethingNew", 400, CloudError),
    ],
)
@pytest.mark.parametrize("verb", [True, False])
def test_codes_decide_whatever_the_text_and_status(code: str, status: int, kind: type[CloudError], verb: bool) -> None:
    error = translate(refusal(code, status), STOP, verb=verb)

    assert type(error) is kind
    assert error.code == code
    assert str(error).startswith(f"{STOP}: {code}: their words")


@pytest.mark.parametrize("code", ["InternalError", "ServiceUnavailable", "Unavailable", "500", "SomethingNew"])
def test_a_server_error_on_a_verb_leaves_open_what_happened(code: str) -> None:
    assert type(translate(refusal(code, 503), STOP, verb=True)) is AnswerLost
    assert type(translate(refusal(code, 503), STOP, verb=False)) is Unreachable


@pytest.mark.parametrize(
    ("error", "read", "verb"),
    [
        (theirs.ReadTimeoutError(endpoint_url=URL), Unreachable, AnswerLost),
        (theirs.ConnectionClosedError(endpoint_url=URL), Unreachable, AnswerLost),
        (theirs.HTTPClientError(error=OSError("reset")), Unreachable, AnswerLost),
        (theirs.SSLError(endpoint_url=URL, error=OSError("eof")), Unreachable, AnswerLost),
        (ResponseParserError("cut off"), Unreachable, AnswerLost),
        (OSError("reset"), Unreachable, AnswerLost),
        (ValueError("new"), CloudError, AnswerLost),
        (theirs.EndpointConnectionError(endpoint_url=URL), Unreachable, Unreachable),
        (theirs.ConnectTimeoutError(endpoint_url=URL), Unreachable, Unreachable),
        (theirs.ProxyConnectionError(proxy_url=URL), Unreachable, Unreachable),
        (theirs.NoCredentialsError(), Denied, Denied),
        (theirs.CredentialRetrievalError(provider="p", error_msg="m"), Denied, Denied),
        (theirs.ProfileNotFound(profile="p"), Denied, Denied),
        (RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."), Denied, AnswerLost),
        (theirs.ParamValidationError(report="bad"), CloudError, CloudError),
        (theirs.InvalidRegionError(region_name="no such"), CloudError, CloudError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_silences(error: Exception, read: type[CloudError], verb: type[CloudError]) -> None:
    assert type(translate(error, STOP, verb=False)) is read
    assert type(translate(error, STOP, verb=True)) is verb
    assert str(translate(error, STOP, verb=True)).startswith(STOP)


def test_the_encoded_blob_of_a_denial_is_cut_off() -> None:
    text = "You are not authorized to perform this operation. Encoded authorization failure message: " + "x" * 700

    error = translate(refusal("UnauthorizedOperation", 403, text), STOP, verb=True)

    assert str(error) == (
        f"{STOP}: UnauthorizedOperation: You are not authorized to perform this operation; "
        "allow it in the IAM policy of the role that this process runs with"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("Client.InternalError", Hindrance.KEY),
        ("Server.InsufficientInstanceCapacity", Hindrance.CAPACITY),
        ("Client.VolumeLimitExceeded", Hindrance.QUOTA),
        ("Server.InternalError", Hindrance.CLOUD),
        ("Client.UserInitiatedShutdown", None),
        ("", None),
        (None, None),
    ],
)
def test_a_start_that_fell_back_says_why_by_code(code: str | None, kind: Hindrance | None) -> None:
    assert bounced(code) is kind
