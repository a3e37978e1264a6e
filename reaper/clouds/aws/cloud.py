"""EC2 instances of any number of accounts in all their regions."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reaper import log
from reaper.clouds.aws import acts
from reaper.clouds.aws.account import NOT_ALLOWED, OFF_OR_BAD_KEYS, Account, Regions
from reaper.clouds.aws.clients import Bounds, Clients, default_session
from reaper.clouds.aws.fanout import Fanout
from reaper.clouds.aws.models import TrimmedLoader
from reaper.clouds.aws.needs import needed
from reaper.clouds.aws.permissions import EVERYTHING
from reaper.clouds.aws.prices import Prices
from reaper.clouds.aws.roles import assuming
from reaper.clouds.aws.types import Types
from reaper.clouds.cloud_time import CloudTime
from reaper.errors import CloudError, NotFound, Throttled
from reaper.model import policy
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from boto3.session import Session

SLOWER = timedelta(minutes=1)
SLOWEST = timedelta(minutes=8)
"""How long a place that throttled us to the end is left alone: the first time, doubled each time, and at most."""

_LOG = log.get(__name__)


@dataclass(slots=True)
class _Throttle:
    until_s: float
    wait: timedelta


class AwsCloud:
    """
    Implements ports.Cloud. ``list_within``: seconds after which what still has not answered is given up for this listing.
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
        self._list_within = list_within
        self._page_size = page_size
        self._time = CloudTime(clock)
        self._types = Types()
        self._loader: TrimmedLoader | None = None
        self._loading = threading.Lock()
        self._prices = Prices(clock, None if settings.price_file is None else Path(settings.price_file), ask=settings.price_list)
        self._session, self._prepared = session, prepared
        self.accounts = tuple(self._account(account) for account in settings.accounts or (policy.AwsAccount(),))
        self._fanout: Fanout[tuple[str, str], Any] = Fanout("aws-list")
        self._throttled: dict[Place, _Throttle] = {}
        self._answered: set[Place] = set()
        self._said: set[Place] = set()

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
        began = time.monotonic()
        plans = self._fanout.ask({(str(n), ""): partial(self._plan, account) for n, account in enumerate(self.accounts)}, self._list_within)
        found: list[Listed] = []
        questions: dict[tuple[str, str], Callable[[], tuple[Instance, ...]]] = {}
        places: dict[tuple[str, str], Place] = {}
        for n, account in enumerate(self.accounts):
            regions = self._planned(account, plans[(str(n), "")])
            if isinstance(regions, CloudError):
                if account.known_id is None or (len(self.accounts) == 1 and not account.known_regions):
                    raise regions
                found += [Listed(place, failed=_told(place, regions)) for place in self._places_of(account)]
                continue
            for region, why in regions.off.items():
                found.append(self._left_out(Place(self.name, account.own(), region), why))
            for region in regions.listed:
                place = Place(self.name, account.own(), region)
                waiting = self._waiting(place)
                if waiting is not None:
                    found.append(waiting)
                    continue
                places[(str(n), region)] = place
                questions[(str(n), region)] = partial(account.list_region, region)
        answers = self._fanout.ask(questions, max(self._list_within - (time.monotonic() - began), 0.0))
        listed = {places[key]: self._outcome(places[key], future) for key, future in answers.items()}
        self._learn_prices(listed.values())
        self._leave_out(listed, {places[key]: (self.accounts[int(key[0])], answers[key]) for key in answers})
        return tuple(sorted((*found, *listed.values()), key=lambda one: (one.place.account, _order(self._settings, one.place))))

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

    # --- listing ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _plan(account: Account) -> Regions:
        account.own()
        return account.regions()

    def _planned(self, account: Account, future: "Future[Regions] | None") -> Regions | CloudError:
        if future is None or not future.done():
            return CloudError(f"AWS account {account.known_id}: no answer within {self._list_within:g} s; check the network")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, CloudError):
            return error
        _LOG.error("account not understood", account=account.known_id, error=f"{type(error).__name__}: {error}")
        return CloudError(f"AWS account {account.known_id}: its answer is not understood: {error}")

    def _places_of(self, account: Account) -> tuple[Place, ...]:
        """Where an account that cannot be asked is held; one place without a name where its regions were never known."""
        return tuple(Place(self.name, str(account.known_id), region) for region in account.known_regions or ("?",))

    def _outcome(self, place: Place, future: "Future[tuple[Instance, ...]] | None") -> Listed:
        if future is None or not future.done():
            return Listed(place, failed=f"{place}: no complete answer within {self._list_within:g} s; check the network, or leave the region out")
        error = future.exception()
        if error is None:
            self._answered.add(place)
            self._throttled.pop(place, None)
            return Listed(place, instances=future.result())
        if isinstance(error, Throttled):
            before = self._throttled.get(place)
            wait = min(before.wait * 2, SLOWEST) if before is not None else SLOWER
            # a little less than whole minutes, so that a cycle a minute later is not just too early
            self._throttled[place] = _Throttle(self._clock.monotonic() + wait.total_seconds() - 10, wait)
        if not isinstance(error, CloudError):
            _LOG.error("listing not understood", place=str(place), error=f"{type(error).__name__}: {error}")
            return Listed(place, failed=f"{place}: the listing is not understood: {error}")
        return Listed(place, failed=_told(place, error))

    def _learn_prices(self, listed: Iterable[Listed]) -> None:
        """In a thread of its own, after the listing; what it learns is told from the next listing on."""
        wanted = {(i.id.place, i.type) for one in listed for i in one.instances if i.gpus != 0}
        self._fanout.ask({("", "prices"): lambda: self._prices.learn(self.accounts[0], wanted)}, 0.0)

    def _waiting(self, place: Place) -> Listed | None:
        """Left alone for now, because it throttled us: asking on would only make it worse for everybody in the account."""
        throttle = self._throttled.get(place)
        left = throttle.until_s - self._clock.monotonic() if throttle is not None else 0.0
        return Listed(place, failed=f"{place}: it throttled us; asked again in {left:.0f} s") if left > 0 else None

    def _leave_out(self, listed: dict[Place, Listed], asked: "dict[Place, tuple[Account, Future[tuple[Instance, ...]] | None]]") -> None:
        """
        A region that is off, or that policy denies as a whole, is no failure. Denied as a whole: the same question is answered
        in another region of the account, and never was in this one.
        """
        fine = {place.account for place, one in listed.items() if one.failed is None}
        for place, (account, future) in asked.items():
            error = future.exception() if future is not None and future.done() else None
            if not isinstance(error, CloudError) or place in self._answered:
                continue
            why: str | None = None
            if error.code in OFF_OR_BAD_KEYS:
                why = account.switched_off(place.name)
            elif error.code in NOT_ALLOWED and place.account in fine:
                why = "policy denies this region, and allows the same in others"
            if why is not None:
                listed[place] = self._left_out(place, why)

    def _left_out(self, place: Place, why: str) -> Listed:
        if place not in self._said:
            self._said.add(place)
            _LOG.warning("region left out", place=str(place), because=why)
        return Listed(place, skipped=f"{place}: {why}")


def _told(place: Place, error: CloudError) -> str:
    return str(error) if str(place) in str(error) else f"{place}: {error}"


def _order(settings: policy.AwsCloud, place: Place) -> tuple[int, str]:
    """As the operator wrote the regions, then by name."""
    written = settings.regions.index(place.name) if place.name in settings.regions else len(settings.regions)
    return written, place.name
