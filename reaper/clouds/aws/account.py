"""One AWS account: whose credentials we have, which regions it has, and what runs in each."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from reaper import log
from reaper.clouds.aws.answers import STALE_CREDENTIALS, translate
from reaper.clouds.aws.clients import Clients
from reaper.clouds.aws.commitments import Commitments
from reaper.clouds.aws.instances import parse_instance
from reaper.clouds.aws.nominated import Nominated
from reaper.clouds.aws.permissions import READER, Permission
from reaper.clouds.aws.prices import Prices
from reaper.clouds.aws.spots import Spots
from reaper.clouds.aws.types import Types
from reaper.errors import CloudError, Denied, NotFound
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.policy import AwsAccount
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock

NEEDS = (
    Permission("ec2:DescribeRegions", READER, "find the regions that the account has switched on", probe="describe_regions"),
    Permission("ec2:DescribeInstances", READER, "list and read machines", probe="describe_instances"),
)

REGIONS_FOR = timedelta(hours=1)
"""How long the list of switched-on regions is good. Switching one on takes AWS minutes to hours."""

NOT_ALLOWED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
OFF_OR_BAD_KEYS = frozenset({"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException"})
"""What a region that is switched off answers, and what wrong credentials are answered everywhere."""

_LOG = log.get(__name__)
_REGION = re.compile(r"^[a-z]{2,4}(-[a-z]+)+-\d+$")


@dataclass(frozen=True, slots=True)
class Regions:
    """``off``: why each region that was left out was left out."""

    listed: tuple[str, ...]
    off: Mapping[str, str] = field(default_factory=dict)


class Account:
    """
    Reads of one account. Thread-safe. ``settings.regions``: to list; empty: those that the account has switched on.
    ``page_size``: machines a page, 5 to 1000. Raises CloudError and its kinds only.
    """

    def __init__(self, settings: AwsAccount, clients: Clients, types: Types, prices: Prices, clock: Clock, page_size: int) -> None:
        self.settings = settings
        self.clients = clients
        self._types = types
        self.prices = prices
        self.given = {key: text for key in ("owner", "project", "environment") if (text := getattr(settings, key)) is not None} or None
        self._spots = Spots()
        self._last_read: dict[ResourceId, Instance] = {}
        self._listed: dict[str, tuple[Instance, ...]] = {}
        self.clock = clock
        self.page_size = page_size
        self.nominated = Nominated(self, clock, Commitments(self, clock, ask=prices.asks))
        self._id: str | None = None
        self._asked_regions: tuple[float, Regions] | None = None

    @property
    def known_id(self) -> str | None:
        """None: the settings name no account, and AWS has not told yet."""
        return self._id or self.settings.id

    @property
    def known_regions(self) -> tuple[str, ...]:
        """Those last listed, or to be listed; empty where that is not known yet."""
        return self._asked_regions[1].listed if self._asked_regions is not None else self.settings.regions

    def own(self) -> str:
        """The account that the credentials belong to: asked once, then kept. Raises Denied where the settings name another."""
        if self._id is None:
            doing = "ask AWS whose credentials these are"
            if self.settings.role is not None:
                doing = f"reach AWS account {self.settings.id} by the role {self.settings.role}, which has to be there and to trust us"
            sts = self.call(doing, lambda: self.clients.reads(self.clients.home, "sts"))
            account = str(self.call(doing, sts.get_caller_identity)["Account"])
            if self.settings.id is not None and account != self.settings.id:
                raise Denied(
                    f"the credentials belong to AWS account {account}, and the configuration names {self.settings.id}; "
                    "run with credentials of that account, write a role for it, or correct clouds.aws.accounts"
                )
            self._id = account
        return self._id

    def regions(self) -> Regions:
        """
        The settings' own, else those switched on; those that are off are left out of either.

        A failed question falls back on its last answer, then on the settings' own list; without either it raises.
        """
        now = self.clock.monotonic()
        if self._asked_regions is not None and now - self._asked_regions[0] < REGIONS_FOR.total_seconds():
            return self._asked_regions[1]
        if self.settings.regions:
            return Regions(self.settings.regions)
        try:
            words = self._opt_in_words()
        except CloudError as error:
            if self._asked_regions is None:
                raise
            _LOG.warning("regions not readable", account=self._id, because=str(error), using=len(self._asked_regions[1].listed))
            return self._asked_regions[1]
        self._asked_regions = (now, _switched_on(sorted(words), words))
        return self._asked_regions[1]

    def switched_off(self, region: str) -> str | None:
        """Asked of a listed region that refused our keys: why it is no failure, and None where it is one."""
        if self._asked_regions is None or region not in self._asked_regions[1].off:
            try:
                words = self._opt_in_words()
            except CloudError as error:
                _LOG.warning("regions not readable", account=self._id, because=str(error))
                return None
            self._asked_regions = (self.clock.monotonic(), _switched_on(self.settings.regions or sorted(words), words))
        return self._asked_regions[1].off.get(region)

    def _opt_in_words(self) -> dict[str, str | None]:
        client = self.reads(self.clients.home)
        answer = self.call("ask AWS for the account's regions", lambda: client.describe_regions(AllRegions=True))
        return {region["RegionName"]: region.get("OptInStatus") for region in answer["Regions"]}

    def list_region(self, region: str) -> tuple[Instance, ...]:
        """All or nothing: a page that fails fails the region. Without filters; those that are gone are dropped here."""
        account = self.own()
        doing = f"list instances in {Place('aws', account, region)}"
        client = self.reads(region)
        # a machine that moves between pages while they are read comes twice: the later page is the newer
        found: dict[ResourceId, Instance] = {}
        before = {instance.id: instance for instance in self._listed.get(region, ())}
        pages = client.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": self.page_size}, **unhidden(client, "DescribeInstances"))
        for page in self._each(doing, pages):
            raws = machines_of(page, account)
            self._types.learn(self, region, raws)
            self._spots.learn(self, region, raws, self.clock.monotonic())
            for raw in raws:
                instance = self._parse(raw, account, region)
                known = before.get(instance.id)
                # one that did not change is kept as it was: two whole fleets would else be in memory at once
                instance = known if known == instance else instance
                found[instance.id] = instance
            raws.clear()
            page.get("Reservations", []).clear()  # botocore holds on to a page until it has the next: two of them are a tenth of all our memory
        self._listed[region] = tuple(i for i in found.values() if i.state is not InstanceState.TERMINATED)
        return self._listed[region]

    def holders(self, region: str) -> dict[str, str]:
        """By disk the machine that has it, as of the region's last good listing; empty before there was one."""
        return {volume: instance.id.native for instance in self._listed.get(region, ()) for volume in instance.volumes}

    def get(self, resource: ResourceId) -> Instance:
        """A terminated machine is still read while EC2 remembers it (about an hour)."""
        self.require(resource)
        doing = f"read {resource}"
        client = self.reads(resource.place)
        answer = self.call(doing, lambda: client.describe_instances(InstanceIds=[resource.native], **unhidden(client, "DescribeInstances")))
        raws = [raw for raw in machines_of(answer, resource.account) if raw.get("InstanceId") == resource.native]
        if not raws:
            raise NotFound(f"{doing}: EC2's answer does not hold it; it is gone, or the id is wrong")
        self._types.learn(self, resource.place, raws)
        self._spots.learn(self, resource.place, raws, self.clock.monotonic())
        instance = self._parse(raws[0], resource.account, resource.place)
        self._last_read[resource] = instance
        return instance

    def _parse(self, raw: Mapping[str, Any], account: str, region: str) -> Instance:
        price = self.prices.of(region, str(raw.get("InstanceType")))
        return parse_instance(
            raw, account=account, region=region, types=self._types, spot_types=self._spots.types, hourly_usd=price, given=self.given
        )

    def last_read(self, resource: ResourceId) -> Instance:
        """As last read by itself, else read now: for what does not change while it runs (type, zone)."""
        return self._last_read.get(resource) or self.get(resource)

    def require(self, resource: ResourceId) -> None:
        """Raises NotFound for what these credentials and settings do not cover: an id may come from anywhere."""
        if resource.cloud != "aws" or resource.kind != "instance" or not _REGION.match(resource.place):
            raise NotFound(f"{resource} is not an EC2 instance; write it as aws:123456789012:eu-west-1:instance:i-0abc")
        account = self.own()
        if resource.account != account:
            raise NotFound(f"{resource} is in another account than these credentials ({account})")
        if resource.place not in self.regions().listed:
            raise NotFound(f"{resource} is in a region that is not listed; add it to clouds.aws.regions")

    def call(self, doing: str, ask: Callable[[], Any], *, verb: bool = False) -> Any:
        """Raises CloudError and its kinds only."""
        try:
            return ask()
        except CloudError:
            raise  # one of our own hooks refused
        except Exception as error:  # whatever came up while a verb was out, the verb may have been carried out
            ours = translate(error, doing, verb=verb)
            if ours.code in STALE_CREDENTIALS:
                self.clients.forget()
            raise ours from error

    def reads(self, region: str, service: str = "ec2") -> Any:
        return self.call(f"connect to {service} in {region}", lambda: self.clients.reads(region, service))

    def verbs(self, region: str, service: str = "ec2") -> Any:
        return self.call(f"connect to {service} in {region}", lambda: self.clients.verbs(region, service))

    def pages(self, doing: str, client: Any, operation: str, **asked: Any) -> list[Mapping[str, Any]]:
        """Every page of a paginated read. Raises CloudError when one of them failed."""
        return list(self.paged(doing, client, operation, **asked))

    def paged(self, doing: str, client: Any, operation: str, **asked: Any) -> Iterator[Mapping[str, Any]]:
        """The same, one page at a time."""
        return self._each(doing, client.get_paginator(operation).paginate(**asked))

    def _each(self, doing: str, pages: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """Page by page, so that no more than one of them is in memory as AWS sent it."""
        nothing: dict[str, Any] = {}
        left = iter(pages)
        while (page := self.call(doing, lambda: next(left, nothing))) is not nothing:
            yield page


def _switched_on(regions: Iterable[str], words: Mapping[str, str | None]) -> Regions:
    """Anything but a plain "not opted in" is listed: a word we do not know must not hide a region."""
    off = {region: "the account has not switched this region on" for region in regions if words.get(region) == "not-opted-in"}
    return Regions(tuple(region for region in regions if region not in off), off)


def unhidden(client: Any, operation: str) -> dict[str, Any]:
    """An account may hide what AWS services operate in it; it bills all the same. Older SDKs do not know the word."""
    known = client.meta.service_model.operation_model(operation).input_shape.members
    return {"IncludeManagedResources": True} if "IncludeManagedResources" in known else {}


def machines_of(answer: Mapping[str, Any], account: str) -> list[Mapping[str, Any]]:
    raws: list[Mapping[str, Any]] = []
    for reservation in answer.get("Reservations", ()):
        owner = reservation.get("OwnerId")
        if owner is not None and owner != account:
            # the credentials were swapped under us: ids made from the remembered account would be wrong
            raise Denied(f"EC2 answers for AWS account {owner} instead of {account}; restart with credentials of one account")
        raws.extend(reservation.get("Instances", ()))
    return raws
