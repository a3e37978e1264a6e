"""
Our own errors. Each names what the caller does next; the original is chained as the cause.

Messages give the id, the cause and the remedy. Adapters raise these at their edge
from the other side's *codes*, never from its message texts.
"""


class ReaperError(Exception):
    """Anything we raise on purpose."""


class ConfigurationError(ReaperError):
    """The configuration is refused. ``problems``: one sentence each, with path and remedy; never empty."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class UsageError(ReaperError):
    """What a person asked for cannot be read or does not exist."""


class Refused(ReaperError):
    """What a person asked for is understood and not allowed."""


class StoreError(ReaperError):
    """The state could not be read or written."""


class HeardElsewhere(StoreError):
    """Another process kept a report of the same machine meanwhile, and nothing was written: judge it again by what stands now."""


class LeaseLost(ReaperError):
    """Another reaper leads, or our lease ran out: nothing may be changed."""


class BudgetSpent(ReaperError):
    """The intent would exceed a budget: nothing was written."""


class NotDelivered(ReaperError):
    """A channel did not accept a message. The text holds no address and no secret."""


class CloudError(ReaperError):
    """A cloud did not do what was asked. ``code`` is the cloud's own error code, or "" when there was no answer."""

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class Throttled(CloudError):
    """Asked too often. Read again later; slow down."""


class Denied(CloudError):
    """Credentials or permissions. A person has to change something."""


class NotFound(CloudError):
    """The resource is not there (any more)."""


class WrongState(CloudError):
    """The resource is in a state that does not allow this. Read it again."""


class Protected(CloudError):
    """The owner switched a protection on. Never override it."""


class Unsupported(CloudError):
    """This resource cannot do that, now or later (a one-time spot instance cannot be stopped)."""


class NoCapacity(CloudError):
    """The cloud has no machine of this type here now. Try again later."""


class QuotaReached(CloudError):
    """A limit of the account. A person has to have it raised, or something has to end."""


class KeyUnusable(CloudError):
    """A disk's key cannot be used: disabled, deleted, or whoever starts the machine may not make a grant on it."""


class TooSoon(CloudError):
    """Once too often for this one resource (snapshots of one disk). Wait for a quarter of a minute at least, better a cycle."""


class AnswerLost(CloudError):
    """The call may or may not have been carried out. Read the resource before anything else."""


class Unreachable(CloudError):
    """No connection, or the cloud failed. Reads may be tried again; of a verb: it never left us, and nothing was done."""


class ReadOnly(CloudError):
    """A mutating call in a process whose ceiling is observe. A bug in us: the caller must not get here."""
