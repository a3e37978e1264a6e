"""What instance types bring, learned once each for the process's life: it is the same in every account and region."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reaper import log
from reaper.clouds.aws.instances import TypeFacts, parse_type
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (Permission("ec2:DescribeInstanceTypes", READER, "know how many GPUs and which local disks a type has", probe="describe_instance_types"),)

_LOG = log.get(__name__)
_TYPES_A_CALL = 100


class Types(Mapping[str, TypeFacts]):
    """By name. What could not be read is not in it, and is asked again."""

    def __init__(self) -> None:
        self._known: dict[str, TypeFacts] = {}

    def __getitem__(self, name: str) -> TypeFacts:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, account: "Account", region: str, raws: Sequence[Mapping[str, Any]]) -> None:
        """
        Of entries of DescribeInstances. By filter, because one retired type in InstanceTypes would make EC2 refuse the
        whole question.
        """
        wanted = sorted({str(raw["InstanceType"]) for raw in raws if raw.get("InstanceType")} - self._known.keys())
        if not wanted:
            return
        for at in range(0, len(wanted), _TYPES_A_CALL):
            some = wanted[at : at + _TYPES_A_CALL]
            try:
                client = account.reads(region)
                answers = account.pages(
                    f"read instance types in {region}", client, "describe_instance_types",
                    Filters=[{"Name": "instance-type", "Values": some}], PaginationConfig={"PageSize": 100},
                )  # fmt: skip
            except CloudError as error:
                _LOG.warning("instance types not readable", region=region, types=some, because=str(error))
                return
            for raw in (raw for answer in answers for raw in answer.get("InstanceTypes", ())):
                self._known[str(raw["InstanceType"])] = parse_type(raw)
