"""Of which kind the spot machines of an account are: one-time or persistent. The listing does not tell, their requests do."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reaper import log
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (
    Permission("ec2:DescribeSpotInstanceRequests", READER, "tell one-time spot machines from persistent ones", probe="describe_spot_instance_requests"),
)

AGAIN_S = 600
"""A request that was not told is asked for again so much later: one that is gone would else be asked for in every listing."""

_LOG = log.get(__name__)
_REQUESTS_A_CALL = 200


class Spots:
    """Types by request id, learned once each: a request never changes its own."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._not_before: dict[str, float] = {}

    def learn(self, account: "Account", region: str, raws: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Of entries of DescribeInstances. ``now_s``: monotonic. What cannot be read stays unknown."""
        named = {str(raw["SpotInstanceRequestId"]) for raw in raws if raw.get("SpotInstanceRequestId")} - self.types.keys()
        wanted = sorted(request for request in named if self._not_before.get(request, now_s) <= now_s)
        for at in range(0, len(wanted), _REQUESTS_A_CALL):
            some = wanted[at : at + _REQUESTS_A_CALL]
            self._not_before |= dict.fromkeys(some, now_s + AGAIN_S)
            try:
                answers = account.pages(
                    f"read spot requests in {region}", account.reads(region), "describe_spot_instance_requests",
                    Filters=[{"Name": "spot-instance-request-id", "Values": some}],
                )  # fmt: skip
            except CloudError as error:
                _LOG.warning("spot requests not readable", region=region, because=str(error))
                return
            for raw in (raw for answer in answers for raw in answer.get("SpotInstanceRequests", ())):
                if raw.get("Type"):
                    self.types[str(raw.get("SpotInstanceRequestId"))] = str(raw["Type"])
                    self._not_before.pop(str(raw.get("SpotInstanceRequestId")), None)
