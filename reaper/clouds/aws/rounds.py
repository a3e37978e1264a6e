"""
One question put to every region of every account, and what became of it in each: answered, failed, or left out on purpose.

A place that fails, hangs or throttles changes nothing for its neighbours, and never looks like one where there is nothing.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from reaper import log
from reaper.clouds.aws.account import NOT_ALLOWED, OFF_OR_BAD_KEYS, Account, Regions
from reaper.clouds.aws.fanout import Fanout
from reaper.errors import CloudError, Throttled
from reaper.model.resource import Place
from reaper.ports import Clock

SLOWER = timedelta(minutes=1)
SLOWEST = timedelta(minutes=8)
"""How long a place that throttled us to the end is left alone: the first time, doubled each time, and at most."""

_LOG = log.get(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """Exactly one of the three is there: what was ``found``, why it ``failed``, why the place is ``skipped``."""

    place: Place
    account: Account
    found: T | None = None
    failed: str | None = None
    skipped: str | None = None


@dataclass(slots=True)
class _Throttle:
    until_s: float
    wait: timedelta


class Patience:
    """Whom to leave alone for now, because it throttled us: asking on would only make it worse for everybody in the account."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._throttled: dict[Hashable, _Throttle] = {}

    def throttled(self, key: Hashable) -> None:
        before = self._throttled.get(key)
        wait = min(before.wait * 2, SLOWEST) if before is not None else SLOWER
        # a little less than whole minutes, so that a cycle a minute later is not just too early
        self._throttled[key] = _Throttle(self._clock.monotonic() + wait.total_seconds() - 10, wait)

    def answered(self, key: Hashable) -> None:
        self._throttled.pop(key, None)

    def asks_later(self, key: Hashable) -> str | None:
        """None: it may be asked now."""
        throttle = self._throttled.get(key)
        left = throttle.until_s - self._clock.monotonic() if throttle is not None else 0.0
        return f"it throttled us; asked again in {left:.0f} s" if left > 0 else None


class Round(Generic[T]):
    """
    Not for several callers at once. ``within``: seconds after which what has not answered is given up. ``order``: of places of one
    account. ``after``: another round over the same places: who throttled that one is not asked here either, and who answered it
    is not denied as a whole.
    """

    def __init__(
        self, name: str, accounts: Sequence[Account], clock: Clock, *, within: float, order: Callable[[Place], Any], after: "Round[Any] | None" = None
    ) -> None:
        self._accounts = accounts
        self._within = within
        self._order = order
        self._after = after
        self._patience = Patience(clock)
        self._answered: set[Place] = set()
        self._said: set[Place] = set()
        self.fanout: Fanout[tuple[str, str], Any] = Fanout(name)

    def ask(self, question: Callable[[Account, str], T]) -> tuple[Answer[T], ...]:
        """Every region of every account. Raises CloudError where there is one account, and it or its regions are not known."""
        began = time.monotonic()
        plans = self.fanout.ask({(str(n), ""): partial(_plan, account) for n, account in enumerate(self._accounts)}, self._within)
        found: list[Answer[T]] = []
        questions: dict[tuple[str, str], Callable[[], T]] = {}
        asked: dict[tuple[str, str], tuple[Place, Account]] = {}
        for n, account in enumerate(self._accounts):
            regions = self._planned(account, plans[(str(n), "")])
            if isinstance(regions, CloudError):
                if account.known_id is None or (len(self._accounts) == 1 and not account.known_regions):
                    raise regions
                found += [Answer(place, account, failed=told(place, regions)) for place in _places_of(account)]
                continue
            found += [self._left_out(Place("aws", account.own(), region), account, why) for region, why in regions.off.items()]
            for region in regions.listed:
                place = Place("aws", account.own(), region)
                later = self.asks_later(place)
                if later is not None:
                    found.append(Answer(place, account, failed=f"{place}: {later}"))
                    continue
                asked[(str(n), region)] = (place, account)
                questions[(str(n), region)] = partial(question, account, region)
        futures = self.fanout.ask(questions, max(self._within - (time.monotonic() - began), 0.0))
        answers = {asked[key][0]: self._outcome(*asked[key], future) for key, future in futures.items()}
        self._leave_out(answers, {asked[key][0]: futures[key] for key in futures})
        return tuple(sorted((*found, *answers.values()), key=lambda one: (one.place.account, self._order(one.place))))

    def asks_later(self, place: Place) -> str | None:
        """Why it is left alone for now; None: it is not."""
        return self._patience.asks_later(place) or (self._after.asks_later(place) if self._after is not None else None)

    def has_answered(self, place: Place) -> bool:
        return place in self._answered or (self._after is not None and self._after.has_answered(place))

    def _planned(self, account: Account, future: "Future[Regions] | None") -> Regions | CloudError:
        if future is None or not future.done():
            return CloudError(f"AWS account {account.known_id}: no answer within {self._within:g} s; check the network")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, CloudError):
            return error
        _LOG.error("account not understood", account=account.known_id, error=f"{type(error).__name__}: {error}")
        return CloudError(f"AWS account {account.known_id}: its answer is not understood: {error}")

    def _outcome(self, place: Place, account: Account, future: "Future[T] | None") -> Answer[T]:
        if future is None or not future.done():
            why = f"{place}: no complete answer within {self._within:g} s; check the network, or leave the region out"
            return Answer(place, account, failed=why)
        error = future.exception()
        if error is None:
            self._answered.add(place)
            self._patience.answered(place)
            return Answer(place, account, found=future.result())
        if isinstance(error, Throttled):
            self._patience.throttled(place)
        if not isinstance(error, CloudError):
            _LOG.error("listing not understood", place=str(place), error=f"{type(error).__name__}: {error}")
            return Answer(place, account, failed=f"{place}: the listing is not understood: {error}")
        return Answer(place, account, failed=told(place, error))

    def _leave_out(self, answers: dict[Place, Answer[T]], futures: "Mapping[Place, Future[T] | None]") -> None:
        """
        A region that is off, or that policy denies as a whole, is no failure. Denied as a whole: the same question is answered
        in another region of the account, and never was in this one.
        """
        fine = {place.account for place, one in answers.items() if one.failed is None}
        for place, future in futures.items():
            error = future.exception() if future is not None and future.done() else None
            if not isinstance(error, CloudError) or self.has_answered(place):
                continue
            account = answers[place].account
            why: str | None = None
            if error.code in OFF_OR_BAD_KEYS:
                why = account.switched_off(place.name)
            elif error.code in NOT_ALLOWED and place.account in fine:
                why = "policy denies this region, and allows the same in others"
            if why is not None:
                answers[place] = self._left_out(place, account, why)

    def _left_out(self, place: Place, account: Account, why: str) -> Answer[T]:
        if place not in self._said:
            self._said.add(place)
            _LOG.warning("region left out", place=str(place), because=why)
        return Answer(place, account, skipped=f"{place}: {why}")


def told(place: Place, error: CloudError) -> str:
    return str(error) if str(place) in str(error) else f"{place}: {error}"


def _plan(account: Account) -> Regions:
    account.own()
    return account.regions()


def _places_of(account: Account) -> tuple[Place, ...]:
    """Where an account that cannot be asked is held; one place without a name where its regions were never known."""
    return tuple(Place("aws", str(account.known_id), region) for region in account.known_regions or ("?",))
