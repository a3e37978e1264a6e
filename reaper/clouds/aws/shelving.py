"""
All disks of all places, and what else lies about there: two rounds of questions, so that what only is told can spoil nothing.

The first is the disks: a place where that fails is failed. The second asks each kind of leftover where the first was answered; what does
not come, or not in time, is a sentence beside the disks.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from reaper import log
from reaper.clouds.aws import leftovers, storage_prices
from reaper.clouds.aws.account import Account
from reaper.clouds.aws.disks import list_disks
from reaper.clouds.aws.fanout import Fanout
from reaper.clouds.aws.leftovers import Found
from reaper.clouds.aws.prices import Prices
from reaper.clouds.aws.rounds import Answer, Patience, Round
from reaper.errors import CloudError, Throttled
from reaper.model.kinds.disk import Disk, Leftover
from reaper.model.resource import Place
from reaper.ports import Clock, Shelf

PRICES_AT_ONCE = 40
"""Prices asked for beside one shelving, which is seldom: a region has a dozen."""

_LOG = log.get(__name__)

_Key = tuple[Place, str]


class Shelving:
    """Not for several callers at once. ``within``: seconds, of each of the two rounds. The others as `Round` has them."""

    def __init__(
        self, accounts: Sequence[Account], clock: Clock, prices: Prices, *, within: float, order: Callable[[Place], Any], after: Round[Any]
    ) -> None:
        self._accounts, self._prices, self._within = accounts, prices, within
        self._disks: Round[tuple[Disk, ...]] = Round("aws-disks", accounts, clock, within=within, order=order, after=after)
        self._fanout: Fanout[_Key, Found] = Fanout("aws-leftovers")
        self._patience = Patience(clock)

    def shelves(self) -> tuple[Shelf, ...]:
        """Raises CloudError where there is one account, and it or its regions are not known."""
        answers = self._disks.ask(list_disks)
        rest = self._leftovers([one for one in answers if one.found is not None])
        shelves = tuple(
            Shelf(
                one.place, disks=one.found or (), failed=one.failed,
                leftovers=tuple(left for found in rest.get(one.place, ()) for left in found.leftovers),
                unread=tuple(sentence for found in rest.get(one.place, ()) for sentence in found.unread),
            )
            for one in answers
            if one.skipped is None
        )  # fmt: skip
        self._learn_prices(shelves)
        return shelves

    def _leftovers(self, answers: Sequence[Answer[tuple[Disk, ...]]]) -> dict[Place, list[Found]]:
        """Of each place, in the order in which the kinds stand in `leftovers.ASKS`."""
        found: dict[_Key, Found] = {}
        questions: dict[_Key, Callable[[], Found]] = {}
        for one in answers:
            for what, ask in leftovers.ASKS.items():
                later = self._patience.asks_later((one.place, what))
                if later is not None:
                    found[one.place, what] = Found(unread=(f"{what}: {later}",))
                else:
                    questions[one.place, what] = partial(ask, one.account, one.place.name, one.found or ())
        futures = self._fanout.ask(questions, self._within)
        found |= {key: self._outcome(key, future) for key, future in futures.items()}
        return {one.place: [found[one.place, what] for what in leftovers.ASKS] for one in answers}

    def _outcome(self, key: _Key, future: "Future[Found] | None") -> Found:
        place, what = key
        if future is None or not future.done():
            return Found(unread=(f"{what}: no complete answer within {self._within:g} s",))
        error = future.exception()
        if error is None:
            self._patience.answered(key)
            return future.result()
        if isinstance(error, Throttled):
            self._patience.throttled(key)
        if isinstance(error, CloudError):
            return Found(unread=(leftovers.why_unread(what, error),))
        _LOG.error("leftovers not understood", place=str(place), what=what, error=f"{type(error).__name__}: {error}")
        return Found(unread=(f"{what}: the answer is not understood: {error}",))

    def _learn_prices(self, shelves: Iterable[Shelf]) -> None:
        """In a thread of its own; what it learns is told from the next shelving on."""
        wanted = set(_words(shelves))
        self._disks.fanout.ask({("", "prices"): lambda: self._prices.learn(self._accounts[0], wanted, PRICES_AT_ONCE)}, 0.0)


def _words(shelves: Iterable[Shelf]) -> Iterable[tuple[str, str]]:
    """The prices that would have been told: of the types of disks that there are, and of what else was found."""
    for shelf in shelves:
        region = shelf.place.name
        yield from ((region, storage_prices.disk(disk.type)) for disk in shelf.disks if disk.type)
        yield from ((region, word) for left in shelf.leftovers if (word := _word(left)) is not None)


def _word(left: Leftover) -> str | None:
    match left.what:
        case "snapshot":
            return storage_prices.SNAPSHOT
        case "address":
            return storage_prices.ADDRESS
        case _:
            return leftovers.price_word(left.id.native)
