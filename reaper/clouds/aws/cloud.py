"""EC2 instances and EBS volumes of any number of accounts in all their regions."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws import acts
from reaper.clouds.aws.account import Account
from reaper.clouds.aws.clients import Bounds, Clients, default_session
from reaper.clouds.aws.models import TrimmedLoader
from reaper.clouds.aws.needs import needed
from reaper.clouds.aws.permissions import EVERYTHING
from reaper.clouds.aws.prices import Prices
from reaper.clouds.aws.roles import assuming
from reaper.clouds.aws.rounds import Round
from reaper.clouds.aws.shelving import Shelving
from reaper.clouds.aws.types import Types
from reaper.clouds.cloud_time import CloudTime
from reaper.errors import CloudError, NotFound
from reaper.model import policy
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed, Shelf

if TYPE_CHECKING:
    from boto3.session import Session


class AwsCloud:
    """
    Implements ports.Cloud and ports.Disks. ``list_within``: seconds after which what still has not answered is given up for this listing.
    ``page_size``: machines a page, 5 to 1000. ``session``: makes the session of the process's own credentials, anew after
    they ran out. ``prepared``: is handed every session that is made, with its account ("" before that is known). boto3 is
    loaded at the first call.
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
        prepared: Callable[["Session", str], "Session"] = lambda session, _: session,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._bounds = Bounds() if bounds is None else bounds
        self._page_size = page_size
        self._time = CloudTime(clock)
        self._types = Types()
        self._loader: TrimmedLoader | None = None
        self._loading = threading.Lock()
        self._prices = Prices(clock, None if settings.price_file is None else Path(settings.price_file), ask=settings.price_list)
        self._session, self._prepared = session, prepared
        self.accounts = tuple(self._account(account) for account in settings.accounts or (policy.AwsAccount(),))
        order = partial(_order, settings)
        self._machines: Round[tuple[Instance, ...]] = Round("aws-list", self.accounts, clock, within=list_within, order=order)
        self._shelving = Shelving(self.accounts, clock, self._prices, within=list_within, order=order, after=self._machines)

    def _account(self, account: policy.AwsAccount) -> Account:
        own = replace(account, regions=tuple(dict.fromkeys(account.regions or self._settings.regions)))
        opens = assuming(self._session, own, self._settings.endpoint, self._role_config)
        clients = Clients(
            endpoint=self._settings.endpoint, regions=own.regions, time=self._time, bounds=self._bounds,
            session=lambda: self._prepared(self._light(opens()), own.id or ""),
        )  # fmt: skip
        return Account(own, clients, self._types, self._prices, self._clock, self._page_size)

    def _light(self, session: "Session") -> "Session":
        """With EC2 cut down to what we call, by one loader for all: a hundred accounts would else hold it a thousand times."""
        core: Any = session._session
        with self._loading:
            if self._loader is None:
                operations = frozenset(p.action.removeprefix("ec2:") for p in needed(*EVERYTHING) if p.action.startswith("ec2:"))
                self._loader = TrimmedLoader(core.get_component("data_loader"), operations)
        core.register_component("data_loader", self._loader)
        return session

    def _role_config(self) -> Any:
        from botocore.config import Config

        return Config(
            retries={"mode": "adaptive", "total_max_attempts": self._bounds.read_attempts}, connect_timeout=self._bounds.connect_s,
            read_timeout=self._bounds.read_s, user_agent_extra="idle-reaper",
        )  # fmt: skip

    # --- reads --------------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Listed, ...]:
        """Every region of every account. Raises Denied or Unreachable where there is one account, and it or its regions are not known."""
        answers = self._machines.ask(lambda account, region: account.list_region(region))
        # in a thread of its own, after the listing; what it learns is told from the next listing on
        wanted = {(i.id.place, i.type) for one in answers for i in one.found or () if i.gpus != 0}
        self._machines.fanout.ask({("", "prices"): lambda: self._prices.learn(self.accounts[0], wanted)}, 0.0)
        return tuple(Listed(one.place, instances=one.found or (), failed=one.failed, skipped=one.skipped) for one in answers)

    def shelves(self) -> tuple[Shelf, ...]:
        """
        As for machines; a region that is switched off, or that policy denies as a whole, is not among them, so that it cannot look like one
        whose disks are gone. Not for several callers at once; one beside `list` is fine.
        """
        return self._shelving.shelves()

    def get(self, resource: ResourceId) -> Instance:
        """A terminated machine is still read while EC2 remembers it (about an hour)."""
        return self._of(resource).get(resource)

    def protections(self, resource: ResourceId) -> Protections:
        try:
            account = self._of(resource)
        except CloudError as error:
            return Protections(because=str(error))
        return account.nominated.read(resource)

    def skew(self, now: datetime) -> timedelta | None:
        return self._time.skew(now)

    # --- verbs --------------------------------------------------------------------------------------------------------

    def stop(self, resource: ResourceId) -> None:
        acts.stop(self._of(resource), resource)

    def hibernate(self, resource: ResourceId) -> None:
        acts.hibernate(self._of(resource), resource)

    def start(self, resource: ResourceId) -> None:
        acts.start(self._of(resource), resource)

    def terminate(self, resource: ResourceId) -> None:
        acts.terminate(self._of(resource), resource)

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        return acts.snapshot(self._of(resource), resource, volume, tags)

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        return acts.snapshots(self._of(resource), resource, key)

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        acts.tag(self._of(resource), resource, tags)

    # --- which account ------------------------------------------------------------------------------------------------

    def _of(self, resource: ResourceId) -> Account:
        """Raises NotFound for an account that is not among ours."""
        for account in self.accounts:
            if account.known_id in (resource.account, None):
                return account
        known = ", ".join(str(account.known_id) for account in self.accounts)
        raise NotFound(f"{resource} is in an account that is not watched ({known}); add it to clouds.aws.accounts")


def _order(settings: policy.AwsCloud, place: Place) -> tuple[int, str]:
    """As the operator wrote the regions, then by name."""
    written = settings.regions.index(place.name) if place.name in settings.regions else len(settings.regions)
    return written, place.name
