"""
List prices: dollars an hour of a type in a region, on demand, Linux, shared tenancy; and those of `storage_prices`.

Asked of the Price List API where that is allowed, a few at a time and never in the way of a listing, and kept in a file,
which also serves where it is not allowed. What neither tells is not known, and is never zero.
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reaper import log
from reaper.clouds.aws import storage_prices
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError
from reaper.ports import Clock

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (
    Permission(
        "pricing:GetProducts", READER, "tell what machines cost; without it, prices are those of the configuration and of price_file",
        optional=True, money=True,
    ),  # fmt: skip
)

ASKED_IN = "us-east-1"
"""The API answers for every region and is in three of them only."""

A_LISTING = 8
"""Prices asked for beside one listing. A fleet has a few dozen types; all are known within minutes."""

AGAIN_S = 24 * 3600.0
REFUSED_S = 3600.0
"""How long a price is good, and how long nothing is asked after a refusal."""

_LOG = log.get(__name__)
_ON_DEMAND = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
}  # fmt: skip


class Prices:
    """Thread-safe. ``file``: where prices are kept, None: nowhere. ``ask``: whether the API may be asked."""

    def __init__(self, clock: Clock, file: Path | None, *, ask: bool) -> None:
        self._clock = clock
        self._file = file
        self._ask = ask
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], float] = {} if file is None else _read(file)
        self._not_before: dict[tuple[str, str], float] = {}
        self._refused_until = 0.0

    @property
    def asks(self) -> bool:
        """Whether AWS may be asked about money at all."""
        return self._ask

    def of(self, region: str, type_: str) -> float | None:
        """Of an instance type or a word of `storage_prices`. None: not known."""
        return self._known.get((region, type_))

    def learn(self, account: "Account", wanted: Iterable[tuple[str, str]], at_most: int = A_LISTING) -> None:
        """Ask for some of the (region, type or word) that are not known or a day old. Never raises CloudError."""
        now = self._clock.monotonic()
        if not self._ask or now < self._refused_until:
            return
        due = [key for key in sorted(set(wanted)) if self._not_before.get(key, now) <= now][:at_most]
        found: dict[tuple[str, str], float] = {}
        for region, type_ in due:
            self._not_before[(region, type_)] = now + AGAIN_S
            try:
                found |= {(region, word): usd for word, usd in self._prices(account, region, type_).items()}
            except CloudError as error:
                self._refused_until = now + REFUSED_S
                self._not_before.pop((region, type_))
                _LOG.warning("list prices not readable", because=str(error), used="prices of the configuration and of price_file")
                break
        if found:
            with self._lock:
                self._known |= found
                if self._file is not None:
                    _write(self._file, self._known)

    @staticmethod
    def _prices(account: "Account", region: str, word: str) -> dict[str, float]:
        doing = f"ask for the list price of {word} in {region}"
        service, fields = storage_prices.asked(word) or ("AmazonEC2", {"instanceType": word, **_ON_DEMAND})
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {"regionCode": region, **fields}.items()]
        client = account.verbs(ASKED_IN, "pricing")  # the client that does not retry: nothing hangs on it
        answer = account.call(doing, lambda: client.get_products(ServiceCode=service, Filters=filters, MaxResults=100))
        offers = answer.get("PriceList", ())
        if storage_prices.asked(word) is not None:
            return storage_prices.read(word, offers)
        price = dearest(offers)
        return {} if price is None else {word: price}


def dearest(offers: Iterable[str]) -> float | None:
    """Of several offers for the same, the dearest: a budget in dollars must not be fooled. None: none in dollars an hour."""
    return max((one.usd for one in storage_prices.dimensions(offers) if one.unit == "Hrs"), default=None)


def _read(file: Path) -> dict[tuple[str, str], float]:
    """{"eu-west-1": {"g5.xlarge": 1.123}}. A file that cannot be read holds no price, and is said."""
    try:
        content = json.loads(file.read_text())
        return {(str(region), str(type_)): float(price) for region, types in content.items() for type_, price in types.items() if float(price) > 0.0}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _LOG.warning("price file not readable", path=str(file), because=f"{type(error).__name__}: {error}")
        return {}


def _write(file: Path, known: Mapping[tuple[str, str], float]) -> None:
    content: dict[str, dict[str, float]] = {}
    for (region, type_), price in sorted(known.items()):
        content.setdefault(region, {})[type_] = price
    beside = file.with_name(f"{file.name}.new")
    try:
        beside.write_text(json.dumps(content, indent=1))
        os.replace(beside, file)
    except OSError as error:
        _LOG.warning("price file not written", path=str(file), because=str(error))
