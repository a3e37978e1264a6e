"""EC2 instances of one account in all its regions, with the process's own credentials."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from reaper import log
from reaper.clouds.aws.answers import STALE_CREDENTIALS, translate
from reaper.clouds.aws.clients import Bounds, Clients, default_session
from reaper.clouds.aws.instances import TypeFacts, parse_instance, parse_type
from reaper.errors import AnswerLost, CloudError, Denied, NotFound
from reaper.model import policy
from reaper.model.kinds.instance import Instance, InstanceState, Protections
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed

if TYPE_CHECKING:
    from boto3.session import Session
    from mypy_boto3_ec2 import EC2Client

AT_ONCE = 16
"""Regions listed at the same time: all of a usual account, and room for good ones beside a few that hang."""

REGIONS_FOR = timedelta(hours=1)
"""How long the list of switched-on regions is good. Switching one on takes AWS minutes to hours."""

_LOG = log.get(__name__)
_REGION = re.compile(r"^[a-z]{2,4}(-[a-z]+)+-\d+$")
_TYPES_A_CALL = 100


class AwsCloud:
    """
    Implements ports.Cloud. ``list_within``: seconds after which a region that still has not answered is given up for
    this listing. ``page_size``: machines a page, 5 to 1000. ``session``: makes the boto3 session, anew after
    credentials ran out. boto3 is loaded at the first call.
    """

    name = "aws"

    def __init__(
        self,
        settings: policy.AwsCloud,
        *,
        clock: Clock,
        session: Callable[[], "Session"] = default_session,
        bounds: Bounds | None = None,
        list_within: float = 45,
        page_size: int = 1000,
    ) -> None:
        self._settings = settings
        self._clock = clock
        home = settings.regions[0] if settings.regions else None
        self._clients = Clients(
            endpoint=settings.endpoint, home=home, clock=clock, bounds=Bounds() if bounds is None else bounds, session=session
        )
        self._list_within = list_within
        self._page_size = page_size
        self._account: str | None = None
        self._asked_regions: tuple[float, tuple[str, ...]] | None = None
        self._types: dict[str, TypeFacts] = {}
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._under_way: dict[str, Future[tuple[Instance, ...]]] = {}

    # --- reads --------------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Listed, ...]:
        """Every region, in parallel. Raises Denied or Unreachable when the account or its regions cannot be asked for."""
        account = self._own_account()
        regions = self._regions()
        futures = {region: self._begin(region, account) for region in regions}
        wait([future for future in futures.values() if future is not None], timeout=self._list_within)
        return tuple(self._outcome(Place(self.name, account, region), futures[region]) for region in regions)

    def get(self, resource: ResourceId) -> Instance:
        """A terminated machine is still read while EC2 remembers it (about an hour)."""
        self._require_ours(resource)
        doing = f"read {resource}"
        client = self._reads(resource.place)
        answer = self._call(doing, lambda: client.describe_instances(InstanceIds=[resource.native], **_unhidden(client)))
        raws = [raw for raw in _flatten([answer], resource.account) if raw.get("InstanceId") == resource.native]
        if not raws:
            raise NotFound(f"{doing}: EC2's answer does not hold it; it is gone, or the id is wrong")
        self._learn_types(resource.place, raws)
        return parse_instance(raws[0], account=resource.account, region=resource.place, types=self._types)

    def protections(self, resource: ResourceId) -> Protections:
        doing = f"read stop protection of {resource}"
        try:
            self._require_ours(resource)
            client = self._reads(resource.place)
            answer = self._call(doing, lambda: client.describe_instance_attribute(InstanceId=resource.native, Attribute="disableApiStop"))
        except CloudError as error:
            return Protections(stop_protected=None, because=str(error))
        value = answer.get("DisableApiStop", {}).get("Value")
        if value is None:
            return Protections(stop_protected=None, because=f"{doing}: EC2's answer does not say")
        return Protections(stop_protected=bool(value), because="disableApiStop is set" if value else None)

    def skew(self, now: datetime) -> timedelta | None:
        """To a second, which is the header's grain."""
        cloud_time = self._clients.cloud_time()
        return None if cloud_time is None else now - cloud_time

    # --- verbs --------------------------------------------------------------------------------------------------------

    def stop(self, resource: ResourceId) -> None:
        """A plain stop: no force, no hibernation. One machine a call, so that no other id can fail it."""
        self._require_ours(resource)
        client = self._call(f"connect to {resource.place}", lambda: self._clients.verbs(resource.place))
        answer = self._call(f"stop {resource}", lambda: client.stop_instances(InstanceIds=[resource.native]), verb=True)
        _require_named(answer.get("StoppingInstances", ()), resource, "stop")

    def start(self, resource: ResourceId) -> None:
        self._require_ours(resource)
        client = self._call(f"connect to {resource.place}", lambda: self._clients.verbs(resource.place))
        answer = self._call(f"start {resource}", lambda: client.start_instances(InstanceIds=[resource.native]), verb=True)
        _require_named(answer.get("StartingInstances", ()), resource, "start")

    # --- account and regions ------------------------------------------------------------------------------------------

    def _own_account(self) -> str:
        """Asked once, then kept. Raises Denied where it is not the one the settings name."""
        if self._account is None:
            account = self._call("ask AWS whose credentials these are", self._clients.caller_account)
            if self._settings.account is not None and account != self._settings.account:
                raise Denied(
                    f"the credentials belong to AWS account {account}, and the configuration names {self._settings.account}; "
                    "run with credentials of that account, or correct clouds.aws.accounts"
                )
            self._account = account
        return self._account

    def _regions(self) -> tuple[str, ...]:
        """The settings' own, else those switched on. A failed question falls back on its last answer, if there was one."""
        if self._settings.regions:
            return tuple(dict.fromkeys(self._settings.regions))
        now = self._clock.monotonic()
        if self._asked_regions is not None and now - self._asked_regions[0] < REGIONS_FOR.total_seconds():
            return self._asked_regions[1]
        try:
            answer = self._call("ask AWS for the account's regions", lambda: self._clients.reads(self._clients.home).describe_regions(AllRegions=True))
        except CloudError as error:
            if self._asked_regions is None:
                raise
            _LOG.warning("regions not readable", because=str(error), using=len(self._asked_regions[1]))
            return self._asked_regions[1]
        # anything but a plain "not opted in" is listed: a word we do not know must not hide a region
        found = sorted(r["RegionName"] for r in answer["Regions"] if r.get("OptInStatus") != "not-opted-in")
        self._asked_regions = (now, tuple(found))
        return self._asked_regions[1]

    def _require_ours(self, resource: ResourceId) -> None:
        """Raises NotFound for what these credentials and settings do not cover: an id may come from anywhere."""
        if resource.cloud != self.name or resource.kind != "instance" or not _REGION.match(resource.place):
            raise NotFound(f"{resource} is not an EC2 instance; write it as aws:123456789012:eu-west-1:instance:i-0abc")
        account = self._own_account()
        if resource.account != account:
            raise NotFound(f"{resource} is in another account than these credentials ({account})")
        if resource.place not in self._regions():
            raise NotFound(f"{resource} is in a region that is not listed; add it to clouds.aws.regions")

    # --- listing ------------------------------------------------------------------------------------------------------

    def _begin(self, region: str, account: str) -> "Future[tuple[Instance, ...]] | None":
        """None: the last listing's question is still out, and a second one would only queue up behind it."""
        before = self._under_way.get(region)
        if before is not None and not before.done():
            return None
        future: Future[tuple[Instance, ...]] = Future()
        self._under_way[region] = future

        def work() -> None:
            with self._slots:
                try:
                    future.set_result(self._list_region(region, account))
                except Exception as error:  # noqa: BLE001 - becomes the place's reason in _outcome
                    future.set_exception(error)

        # daemons: a region that hangs must not keep the process from ending
        threading.Thread(target=work, name=f"aws-list-{region}", daemon=True).start()
        return future

    def _outcome(self, place: Place, future: "Future[tuple[Instance, ...]] | None") -> Listed:
        if future is None or not future.done():
            return Listed(place, failed=f"{place}: no complete answer within {self._list_within:g} s; check the network, or leave the region out")
        error = future.exception()
        if error is None:
            return Listed(place, instances=future.result())
        if not isinstance(error, CloudError):
            _LOG.error("listing not understood", place=str(place), error=f"{type(error).__name__}: {error}")
            return Listed(place, failed=f"{place}: the listing is not understood: {error}")
        return Listed(place, failed=str(error) if str(place) in str(error) else f"{place}: {error}")

    def _list_region(self, region: str, account: str) -> tuple[Instance, ...]:
        """All or nothing: a page that fails fails the region. Without filters; those that are gone are dropped here."""
        doing = f"list instances in aws:{account}:{region}"
        client = self._reads(region)
        pages: Iterable[Any] = client.get_paginator("describe_instances").paginate(
            PaginationConfig={"PageSize": self._page_size}, **_unhidden(client)
        )
        answers = self._call(doing, partial(list, pages))
        raws = _flatten(answers, account)
        self._learn_types(region, raws)
        # a machine that moves between pages while they are read comes twice: the later page is the newer
        found = {i.id: i for i in (parse_instance(raw, account=account, region=region, types=self._types) for raw in raws)}
        return tuple(i for i in found.values() if i.state is not InstanceState.TERMINATED)

    def _learn_types(self, region: str, raws: Sequence[Mapping[str, Any]]) -> None:
        """
        What the types bring, once each for the process's life. What cannot be read stays unknown and is asked again.

        By filter, because one retired type in InstanceTypes would make EC2 refuse the whole question.
        """
        wanted = sorted({str(raw["InstanceType"]) for raw in raws if raw.get("InstanceType")} - self._types.keys())
        client = self._reads(region)
        for at in range(0, len(wanted), _TYPES_A_CALL):
            some = wanted[at : at + _TYPES_A_CALL]
            pages: Iterable[Any] = client.get_paginator("describe_instance_types").paginate(
                Filters=[{"Name": "instance-type", "Values": some}], PaginationConfig={"PageSize": 100}
            )
            try:
                answers = self._call(f"read instance types in {region}", partial(list, pages))
            except CloudError as error:
                _LOG.warning("instance types not readable", region=region, types=some, because=str(error))
                return
            for raw in (raw for answer in answers for raw in answer.get("InstanceTypes", ())):
                self._types[str(raw["InstanceType"])] = parse_type(raw)

    def _call(self, doing: str, ask: Callable[[], Any], *, verb: bool = False) -> Any:
        """Raises CloudError and its kinds only."""
        try:
            return ask()
        except Exception as error:  # whatever came up while a verb was out, the verb may have been carried out
            ours = translate(error, doing, verb=verb)
            if ours.code in STALE_CREDENTIALS:
                self._clients.forget()
            raise ours from error

    def _reads(self, region: str) -> "EC2Client":
        client: EC2Client = self._call(f"connect to {region}", lambda: self._clients.reads(region))
        return client


def _unhidden(client: Any) -> dict[str, Any]:
    """An account may hide machines that AWS services operate; they bill all the same. Older SDKs do not know the word."""
    known = client.meta.service_model.operation_model("DescribeInstances").input_shape.members
    return {"IncludeManagedResources": True} if "IncludeManagedResources" in known else {}


def _flatten(answers: Iterable[Mapping[str, Any]], account: str) -> list[Mapping[str, Any]]:
    raws: list[Mapping[str, Any]] = []
    for reservation in (r for answer in answers for r in answer.get("Reservations", ())):
        owner = reservation.get("OwnerId")
        if owner is not None and owner != account:
            # the credentials were swapped under us: ids made from the remembered account would be wrong
            raise Denied(f"EC2 answers for AWS account {owner} instead of {account}; restart with credentials of one account")
        raws.extend(reservation.get("Instances", ()))
    return raws


def _require_named(changes: Iterable[Mapping[str, Any]], resource: ResourceId, verb: str) -> None:
    if not any(change.get("InstanceId") == resource.native for change in changes):
        raise AnswerLost(f"{verb} {resource}: EC2's answer does not name it; read it before anything else")
