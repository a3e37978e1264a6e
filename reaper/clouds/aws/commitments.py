"""
What an account pays for whether its machines run or not: reserved instances and Savings Plans, where they may be read.

For telling only. A commitment belongs to no machine: of two machines and one commitment, whichever runs is covered, and a
Savings Plan of another account of the organization may cover as well. So what is said of reserved instances is how many of
the type there are, and of Savings Plans that they exist and what they commit to; whether they cover this machine is on the
bill alone. https://docs.aws.amazon.com/savingsplans/latest/APIReference/API_DescribeSavingsPlans.html
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reaper import log
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError
from reaper.model.kinds.instance import Instance
from reaper.model.resource import ResourceId
from reaper.ports import Clock

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (
    Permission(
        "ec2:DescribeReservedInstances", READER, "say where a stop saves nothing", probe="describe_reserved_instances", optional=True, money=True,
    ),  # fmt: skip
    Permission("savingsplans:DescribeSavingsPlans", READER, "say where a stop may save nothing", optional=True, money=True),
)

KEPT_S = 3600.0
"""How long an answer, and a refusal, is good: commitments are made for years."""

PAGES = 20
"""Of a thousand Savings Plans each: more than that is a list without an end."""

PLANS_IN = "us-east-1"
"""The API of Savings Plans is in one region and answers for the whole account."""

_LOG = log.get(__name__)


class Commitments:
    """Of one account. Thread-safe. ``ask``: whether AWS may be asked. Nothing here raises CloudError: what cannot be read is not known, and is said once."""

    def __init__(self, account: "Account", clock: Clock, *, ask: bool) -> None:
        self._account, self._clock, self._ask = account, clock, ask
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, list[Mapping[str, Any]] | None]] = {}
        self._said: set[str] = set()

    def covered(self, resource: ResourceId) -> str | None:
        """The reserved instances of its type in its place, in words; None: none that are known."""
        machine = self._machine(resource)
        if machine is None:
            return None
        reserved = self._remembered(f"reserved instances in {resource.place}", lambda: self._reserved(resource.place)) or ()
        count = sum(int(one.get("InstanceCount") or 0) for one in reserved if _reserves(one, machine))
        return f"{count} reserved {machine.type} are paid for in {resource.place} and no other machine of the type uses them" if count else None

    def committed(self, resource: ResourceId) -> str | None:
        """The Savings Plans that may cover it, in words; None: none that are known."""
        machine = self._machine(resource)
        if machine is None:
            return None
        plans = [one for one in self._remembered("Savings Plans", self._plans) or () if _may_cover(one, machine)]
        return "; ".join(_words(plan) for plan in plans) or None

    def _machine(self, resource: ResourceId) -> Instance | None:
        if not self._ask:
            return None
        try:
            return self._account.last_read(resource)
        except CloudError:
            return None

    # Through the clients that do not retry: nothing hangs on these answers.

    def _reserved(self, region: str) -> list[Mapping[str, Any]]:
        client = self._account.verbs(region)
        active = [{"Name": "state", "Values": ["active"]}]
        answer = self._account.call(f"read reserved instances in {region}", lambda: client.describe_reserved_instances(Filters=active))
        return list(answer.get("ReservedInstances", ()))

    def _plans(self) -> list[Mapping[str, Any]]:
        client = self._account.verbs(PLANS_IN, "savingsplans")
        found: list[Mapping[str, Any]] = []
        more: dict[str, str] = {}
        for _ in range(PAGES):
            answer = self._account.call(
                f"read the Savings Plans of {self._account.known_id}",
                lambda: client.describe_savings_plans(states=["active"], maxResults=1000, **more),  # noqa: B023 - called at once
            )
            found += answer.get("savingsPlans", ())
            if not answer.get("nextToken"):
                return found
            more = {"nextToken": answer["nextToken"]}
        raise CloudError(f"the list of Savings Plans of {self._account.known_id} does not come to an end")

    def _remembered(self, what: str, ask: Callable[[], list[Mapping[str, Any]]]) -> list[Mapping[str, Any]] | None:
        """None: could not be read."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(what)
        if kept is not None and now - kept[0] < KEPT_S:
            return kept[1]
        found: list[Mapping[str, Any]] | None = None
        try:
            found = ask()
        except CloudError as error:
            if what not in self._said:
                self._said.add(what)
                _LOG.warning("commitments not readable", what=what, account=self._account.known_id, because=str(error), used="whether a stop saves is not known")
        with self._lock:
            self._kept[what] = (now, found)
        return found


def _reserves(reserved: Mapping[str, Any], machine: Instance) -> bool:
    """Whether it is of the machine's type, and not bound to another zone. Sizes do not flex for GPU types, so the type has to be the same."""
    zone = reserved.get("AvailabilityZone")
    return reserved.get("InstanceType") == machine.type and (not zone or machine.zone is None or zone == machine.zone)


def _may_cover(plan: Mapping[str, Any], machine: Instance) -> bool:
    """By its kind: one of EC2 is of a family in a region, one of compute of whatever runs anywhere; those of other services never."""
    match plan.get("savingsPlanType"):
        case "Compute":
            return True
        case "EC2Instance":
            return plan.get("ec2InstanceFamily") == machine.type.partition(".")[0] and plan.get("region") == machine.id.place
        case _:
            return False


def _words(plan: Mapping[str, Any]) -> str:
    kind = "compute" if plan.get("savingsPlanType") == "Compute" else f"{plan.get('ec2InstanceFamily')} in {plan.get('region')}"
    commits = f"{plan.get('commitment') or 'an amount that is not told'} {plan.get('currency') or ''}".strip()
    return f"Savings Plan {plan.get('savingsPlanId')} (for {kind}) commits the account to {commits} an hour until {_day(plan.get('end'))}"


def _day(end: Any) -> str:
    return str(end).partition("T")[0] if end else "an end that is not told"
