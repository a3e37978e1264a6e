"""
A reader of DescribeInstances that keeps only what we ask of an entry.

botocore's own reader builds everything that an answer holds, which is nine tenths of the cost of a listing. This one takes
its place for this one operation, with the names that botocore's model gives to the elements; signing, retries, errors and
pages stay botocore's. What is not well-formed is left to botocore, which knows how to refuse it.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from xml.parsers import expat

Wanted = Mapping[str, Any]

WANTED: Wanted = {
    "NextToken": None,
    "Reservations": {
        "OwnerId": None,
        "Instances": {
            "InstanceId": None, "InstanceType": None, "State": {"Name": None}, "StateReason": {"Code": None}, "StateTransitionReason": None,
            "LaunchTime": None, "InstanceLifecycle": None, "SpotInstanceRequestId": None, "RootDeviceType": None, "PublicIpAddress": None,
            "PlatformDetails": None, "CapacityReservationId": None,
            "CapacityReservationSpecification": {
                "CapacityReservationPreference": None,
                "CapacityReservationTarget": {"CapacityReservationId": None, "CapacityReservationResourceGroupArn": None},
            },
            "Placement": {"GroupName": None, "GroupId": None, "AvailabilityZone": None, "Tenancy": None, "HostId": None},
            "HibernationOptions": {"Configured": None}, "Operator": {"Managed": None, "Principal": None},
            "Tags": {"Key": None, "Value": None}, "BlockDeviceMappings": {"Ebs": {"VolumeId": None}},
            "PrivateIpAddress": None,
            "NetworkInterfaces": {
                "NetworkInterfaceId": None, "Association": {"PublicIp": None, "IpOwnerId": None}, "PrivateIpAddress": None,
                "PrivateIpAddresses": {"PrivateIpAddress": None}, "Ipv6Addresses": {"Ipv6Address": None},
            },
        },
    },
}  # fmt: skip
"""Of the answer, by botocore's names: what `instances.parse_instance` and `account` read. A test holds the one to the other."""

EMPTY = b"<DescribeInstancesResponse/>"

Scalar = Callable[[str], Any]


def read_listing(operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """botocore's event before an answer is parsed; what stands in the third argument is added to the parsed answer."""
    if response_dict.get("status_code") != 200:
        return
    try:
        found = read(response_dict["body"], _plan(operation_model))
    except (expat.ExpatError, ValueError):
        return
    customized_response_dict.update(found)
    response_dict["body"] = EMPTY


def read(body: bytes, plan: "Plan") -> dict[str, Any]:
    """Raises ExpatError for what is not XML, ValueError for a value that is not of its type."""
    reader = _Reader(plan)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = reader.start, reader.end, reader.text
    parser.Parse(body, True)
    return reader.root


class Plan:
    """One structure: by element name, the key and what the element holds (a scalar's reader, a structure, or a list of them)."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str, tuple[str, Scalar | None, Plan | None, bool]] = {}


@cache
def _plan(operation_model: Any) -> Plan:
    return _of(operation_model.output_shape, WANTED)


def _of(shape: Any, wanted: Wanted) -> Plan:
    plan = Plan()
    for key, below in wanted.items():
        member = shape.members.get(key)
        if member is None:
            continue  # an SDK that is older than the word
        name = member.serialization.get("name", key)
        is_list = member.type_name == "list"
        target = member.member if is_list else member
        if below is None:
            plan.members[name] = (key, _SCALARS.get(target.type_name, _unique if key.endswith(_UNIQUE) else sys.intern), None, is_list)
        else:
            plan.members[name] = (key, None, _of(target, below), is_list)
    return plan


_UNIQUE = ("Id", "Address", "Ip", "Reason")
"""Ends of keys whose values are hardly ever the same: the others (tags, types, zones) are kept once for the whole fleet."""


def _unique(text: str) -> str:
    return text


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_SCALARS: dict[str, Scalar] = {"boolean": lambda text: text == "true", "integer": int, "timestamp": _moment}


class _Reader:
    """
    ``stack``: for each open element that is wanted, the structure being filled and its plan; a list's own element stands for
    the list, whose items are each a structure.
    """

    def __init__(self, plan: Plan) -> None:
        self.root: dict[str, Any] = {}
        self._top = plan
        self._stack: list[tuple[Any, Plan, bool]] = []
        self._skipped = 0
        self._scalar: tuple[dict[str, Any], str, Scalar] | None = None
        self._text = ""

    def start(self, name: str, _: Mapping[str, str]) -> None:
        if self._skipped:
            self._skipped += 1
            return
        if not self._stack:
            self._stack.append((self.root, self._top, False))
            return
        holder, plan, in_list = self._stack[-1]
        if in_list:
            item: dict[str, Any] = {}
            holder.append(item)
            self._stack.append((item, plan, False))
            return
        member = plan.members.get(name)
        if member is None or self._scalar is not None:
            self._skipped = 1
            return
        key, scalar, below, is_list = member
        if scalar is not None:
            self._scalar, self._text = (holder, key, scalar), ""
        elif below is not None:
            inner: Any = [] if is_list else {}
            holder[key] = inner
            self._stack.append((inner, below, is_list))

    def end(self, _: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif self._scalar is not None:
            holder, key, scalar = self._scalar
            holder[key] = scalar(self._text)
            self._scalar = None
        else:
            self._stack.pop()

    def text(self, text: str) -> None:
        if self._scalar is not None and not self._skipped:
            self._text += text
