"""
List prices: what cores, memory and GPUs cost an hour in a region, on demand and spot, and what a machine comes to by them; and what
disks cost a month (see `disk_prices`).

From the Cloud Billing catalogue where it may be asked, once a day, in a thread of its own and never in the way of a listing;
kept in a file, which also serves where it may not. Licences and discounts are not in it. A machine of which one part
has no price has none: unknown, and never zero. Google tells parts apart by their description only.
https://cloud.google.com/billing/v1/how-tos/catalog-api
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reaper import log
from reaper.clouds.gcp import disk_prices
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.clouds.gcp.rest import BILLING, Rest
from reaper.clouds.gcp.types import TypeFacts
from reaper.errors import CloudError
from reaper.ports import Clock

NEEDS = (Permission("", "cloudbilling.services.skus.list", READER, "prices are those of the configuration and of price_file"),)

COMPUTE = "services/6F81-5844-456A"
AGAIN_S = 24 * 3600.0
REFUSED_S = 3600.0
"""How long prices are good, and how long nothing is asked after a refusal."""

ON_DEMAND, SPOT = "OnDemand", "Preemptible"

_LOG = log.get(__name__)
_UNITS = {"core": "h", "gpu": "h", "ram": "GiBy.h", **disk_prices.UNITS}
# "N2D AMD Instance Core running in Americas", "Spot Preemptible A2 Instance Ram running in Iowa", "N2 Custom Instance Core …"
_PART = re.compile(r"^(?:Spot Preemptible |Preemptible )?(?P<family>.+?) (?:Instance )?(?P<part>Core|Ram)(?: running)? in ", re.I)
# "Nvidia Tesla V100 GPU running in Americas", "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa"
_GPU = re.compile(r"^(?:Spot Preemptible )?(?:Nvidia )?(?:Tesla )?(?P<model>[A-Z0-9 ]+?) GPU (?:attached to (?:Spot )?Preemptible VMs )?running in ", re.I)
_FAMILIES = {"compute optimized": "c2", "memory-optimized": "m1", "memory optimized": "m1", "custom": "n1 custom", "n1 predefined": "n1"}
_MAKERS = frozenset({"amd", "arm", "intel", "predefined"})

Rates = dict[tuple[str, str, str], float]
"""By (region, usage, part): "core n1", "ram n2 custom", "gpu v100", "gpu 80gb a100", "disk pd-ssd", "disk regional pd-ssd"."""


class Prices:
    """Thread-safe. ``file``: where rates are kept, None: nowhere. ``ask``: whether the catalogue may be asked."""

    def __init__(self, rest: Rest, clock: Clock, file: Path | None, *, ask: bool) -> None:
        self._rest, self._clock, self._file, self._ask = rest, clock, file, ask
        self._rates: Rates = {} if file is None else _read(file)
        self.edition = 0
        """Grows whenever prices do not hold any more."""
        self._not_before = 0.0
        self._asking = threading.Lock()
        self._known: dict[tuple[str, str, TypeFacts, tuple[tuple[str, int], ...], bool], float | None] = {}

    @property
    def asks(self) -> bool:
        return self._ask

    def of(self, region: str, type: str, facts: TypeFacts, attached: tuple[tuple[str, int], ...], spot: bool) -> float | None:
        """None: not known. Each kind of machine is added up once."""
        key = (region, type, facts, attached, spot)
        try:
            return self._known[key]
        except KeyError:
            pass
        price = self._known[key] = _price(self._rates, region, type, facts, attached, SPOT if spot else ON_DEMAND)
        return price

    def disk(self, region: str, type: str, size_gib: int | None, iops: int | None, mib_s: int | None, regional: bool) -> float | None:
        """Dollars a month; None: not known."""
        return disk_prices.disk_price(self._rates, ON_DEMAND, region, type, size_gib, iops, mib_s, regional)

    def snapshot(self, location: str, stored_bytes: int) -> float | None:
        return disk_prices.snapshot_price(self._rates, ON_DEMAND, location, stored_bytes)

    def address(self, region: str) -> float | None:
        return disk_prices.address_price(self._rates, ON_DEMAND, region)

    def learn(self, project: str, *, wait: bool = False) -> None:
        """Ask for all of them, if it is time; ``wait``: in this thread. Never raises CloudError."""
        if not self._ask or self._clock.monotonic() < self._not_before or not self._asking.acquire(blocking=False):
            return
        if wait:
            self._learn(project)
        else:
            threading.Thread(target=self._learn, args=(project,), name="gcp-prices", daemon=True).start()

    def _learn(self, project: str) -> None:
        try:
            found: Rates = {}
            for page in self._rest.pages(BILLING, f"v1/{COMPUTE}/skus", "read Google's list prices", project=project, pageSize=5000, currencyCode="USD"):
                rates_of(page.get("skus") or (), found)
            self._not_before = self._clock.monotonic() + AGAIN_S
            if found:  # an empty list is no news
                self._rates = found
                self._known = {}
                self.edition += 1
                if self._file is not None:
                    _write(self._file, found)
        except CloudError as error:
            self._not_before = self._clock.monotonic() + REFUSED_S
            _LOG.warning("list prices not readable", because=str(error), used="prices of the configuration and of price_file")
        except Exception as error:  # noqa: BLE001 - a price that is not understood must not end anything else
            self._not_before = self._clock.monotonic() + REFUSED_S
            _LOG.error("list prices not understood", error=f"{type(error).__name__}: {error}")
        finally:
            self._asking.release()


def rates_of(skus: Iterable[Mapping[str, Any]], found: Rates) -> None:
    """Add the rates of one page. Of two for the same part the dearer one counts: a budget in dollars must not be fooled."""
    for sku in skus:
        category = sku.get("category") or {}
        usage, description = str(category.get("usageType")), str(sku.get("description", ""))
        part = _part(str(category.get("resourceGroup")), description) if usage in (ON_DEMAND, SPOT) else None
        usd = None if part is None else _usd(sku, _UNITS[part.partition(" ")[0]])
        if part is None or usd is None:
            continue
        for region in sku.get("serviceRegions") or ():
            key = (str(region), usage, part)
            found[key] = max(usd, found.get(key, usd))


def _part(group: str, description: str) -> str | None:
    """None: nothing of a plain machine or disk (a commitment, a sole tenant's premium, a reservation)."""
    if re.search(r"commitment|sole tenancy|reserved|premium|dws|calendar|overcommit|slice|upgrade", description, re.I):
        return None
    stored = disk_prices.part_of(description)
    if stored is not None:
        return stored
    gpu = _GPU.match(description)
    if gpu is not None:
        return f"gpu {gpu_words(gpu['model'])}"
    part = _PART.match(description) if group != "GPU" else None
    if part is None:
        return None
    words = [word for word in part["family"].lower().split() if word not in _MAKERS]
    family = _FAMILIES.get(part["family"].lower().removesuffix(" instance"), " ".join(words).removesuffix(" instance"))
    return f"{part['part'].lower()} {family}"


def gpu_words(name: str) -> str:
    """"nvidia-a100-80gb" and "A100 80GB" as "80gb a100": the words that tell models apart, in one order."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return " ".join(sorted({word for word in words if word and word not in ("nvidia", "tesla", "vws", "gpu")}))


def _usd(sku: Mapping[str, Any], unit: str) -> float | None:
    """Of the newest price, its dearest tier, in dollars per ``unit``."""
    try:
        expression = list(sku.get("pricingInfo") or ())[-1]["pricingExpression"]
        if expression.get("usageUnit") != unit:
            return None
        prices = [one["unitPrice"] for one in expression.get("tieredRates") or ()]
        if any(one.get("currencyCode", "USD") != "USD" for one in prices):
            return None
        found = [int(one.get("units") or 0) + int(one.get("nanos") or 0) / 1e9 for one in prices]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    usable = [usd for usd in found if 0.0 < usd < 10_000.0]
    return max(usable) if usable else None


def _price(rates: Rates, region: str, type: str, facts: TypeFacts, attached: tuple[tuple[str, int], ...], usage: str) -> float | None:
    accelerators = attached or facts.accelerators
    if facts.cpus is None or facts.memory_mb is None or facts.gpus is None or facts.tpu or (facts.gpus and not accelerators):
        return None
    family = type.partition("-")[0]
    if family == "custom":
        family = "n1"
    if "custom-" in type:
        family = f"{family} custom"
    wanted = [(f"core {family}", float(facts.cpus)), (f"ram {family}", facts.memory_mb / 1024)]
    wanted += [(f"gpu {gpu_words(name)}", float(count)) for name, count in accelerators]
    total = 0.0
    for part, amount in wanted:
        rate = rates.get((region, usage, part))
        if rate is None and part.endswith(" custom"):
            rate = rates.get((region, usage, part.removesuffix(" custom")))  # some families cost the same in any shape
        if rate is None:
            return None
        total += rate * amount
    return round(total, 6)


def _read(file: Path) -> Rates:
    """{"us-central1": {"OnDemand": {"core n1": 0.0316}}}. A file that cannot be read holds no price, and is said."""
    try:
        content = json.loads(file.read_text())
        return {
            (str(region), str(usage), str(part)): float(usd)
            for region, usages in content.items() for usage, parts in usages.items() for part, usd in parts.items() if float(usd) > 0.0
        }  # fmt: skip
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _LOG.warning("price file not readable", path=str(file), because=f"{type(error).__name__}: {error}")
        return {}


def _write(file: Path, rates: Rates) -> None:
    content: dict[str, dict[str, dict[str, float]]] = {}
    for (region, usage, part), usd in sorted(rates.items()):
        content.setdefault(region, {}).setdefault(usage, {})[part] = usd
    beside = file.with_name(f"{file.name}.new")
    try:
        beside.write_text(json.dumps(content, indent=1))
        os.replace(beside, file)
    except OSError as error:
        _LOG.warning("price file not written", path=str(file), because=str(error))
