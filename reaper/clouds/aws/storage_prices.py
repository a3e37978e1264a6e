"""
What the Price List API is asked about disks, snapshots, addresses and load balancers, and how its answers are read. Pure.

A price has a word in its region, as an instance type has its name: "disk gp3" (dollars a GiB and month), "disk gp3 iops" (an
IOPS and month), "disk gp3 mib/s" (a MiB/s and month), "disk io2 iops 32000" (an IOPS and month above so many), "snapshot" (a GiB
and month), "idle address" and "load balancer network" (an hour). https://aws.amazon.com/ebs/pricing/
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SNAPSHOT, ADDRESS = "snapshot", "idle address"

BALANCERS = {"app": "load balancer application", "net": "load balancer network", "gwy": "load balancer gateway"}
"""By the kind that their ARN tells."""

HOURS = 730
"""Of a month, as AWS counts them."""

INCLUDED = {"gp3": (3000, 125)}
"""IOPS and MiB/s that come with the size. https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""

TIERS = (0, 32_000, 64_000)
"""Of io2: each price is for the IOPS above its tier. https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html"""

_BY_SIZE = frozenset({"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"})
_REGION_PREFIX = r"(?:[A-Z0-9]+-)?"
"""Before a usage type in all regions but one: "EU-", "APN1-". Of Outposts and edge places there are more words ("Outposts-", "TS-")."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One price of an offer. ``usage``: its usage type, "" where it has none."""

    usage: str
    unit: str
    usd: float


def disk(type_: str) -> str:
    return f"disk {type_}"


def asked(word: str) -> tuple[str, dict[str, str]] | None:
    """The service and the fields to match beside the region; None: it is the name of an instance type."""
    kind, _, rest = word.partition(" ")
    if kind == "disk":
        return "AmazonEC2", {"volumeApiName": rest}
    if word == SNAPSHOT:
        return "AmazonEC2", {"productFamily": "Storage Snapshot"}
    if word == ADDRESS:
        return "AmazonVPC", {"group": "VPCPublicIPv4Address"}
    if word in BALANCERS.values():
        return "AWSELB", {"productFamily": f"Load Balancer-{word.rpartition(' ')[2].capitalize()}"}
    return None


def read(word: str, offers: Iterable[str]) -> dict[str, float]:
    """By word; of several offers for the same the dearest. An answer about one disk type tells of its IOPS and MiB/s too."""
    found: dict[str, float] = {}
    for one in dimensions(offers):
        known = _named(word, one)
        if known is not None:
            found[known[0]] = max(known[1], found.get(known[0], 0.0))
    return found


def dimensions(offers: Iterable[str]) -> Iterator[Dimension]:
    """Every usable price in dollars. An offer we do not understand is no price, nor is one of zero."""
    for offer in offers:
        try:
            content = json.loads(offer)
            attributes: Mapping[str, Any] = (content.get("product") or {}).get("attributes") or {}
            if attributes.get("locationType") not in (None, "AWS Region"):
                continue  # an outpost or a local zone, whose prices are others
            terms: Mapping[str, Any] = content.get("terms", {}).get("OnDemand", {})
            found = [one for term in terms.values() for one in term.get("priceDimensions", {}).values()]
            priced = [(str(one.get("unit")), float(one["pricePerUnit"]["USD"])) for one in found if "USD" in one.get("pricePerUnit", {})]
            usage = str(attributes.get("usagetype") or "")
        except (ValueError, AttributeError, TypeError, KeyError):
            continue
        yield from (Dimension(usage, unit, usd) for unit, usd in priced if 0.0 < usd < 100_000.0)


def _named(word: str, one: Dimension) -> tuple[str, float] | None:
    """The word of a price and what it is; None: it is of something else."""
    unit = one.unit.casefold()
    if word.startswith("disk "):
        return _of_disk(word, one, unit)
    if word == SNAPSHOT:
        return (word, one.usd) if unit in _GIB_MONTH and _is("EBS:SnapshotUsage", one) else None
    usage = "PublicIPv4:IdleAddress" if word == ADDRESS else "LoadBalancerUsage"
    return (word, one.usd) if unit == "hrs" and _is(usage, one) else None


_GIB_MONTH = frozenset({"gb-mo", "gb-month"})


def _of_disk(word: str, one: Dimension, unit: str) -> tuple[str, float] | None:
    if unit in _GIB_MONTH and "EBS:VolumeUsage" in one.usage:
        return word, one.usd
    if unit == "iops-mo" and "EBS:VolumeP-IOPS" in one.usage:
        tier = re.search(r"\.tier(\d)$", one.usage)
        if tier is None:
            return f"{word} iops", one.usd
        number = int(tier.group(1)) - 1
        return (f"{word} iops {TIERS[number]}", one.usd) if 0 < number < len(TIERS) else None
    if "EBS:VolumeP-Throughput" in one.usage and unit in ("gibps-mo", "mibps-mo"):
        # listed a GiB/s, described and billed a MiB/s
        return f"{word} mib/s", one.usd / 1024 if unit == "gibps-mo" else one.usd
    return None


def _is(usage: str, one: Dimension) -> bool:
    return re.fullmatch(f"{_REGION_PREFIX}{re.escape(usage)}", one.usage) is not None and not one.usage.startswith(("Outposts-", "TS-"))


def disk_usd(of: Callable[[str], float | None], type_: str | None, size_gib: int | None, iops: int | None, mib_s: int | None) -> float | None:
    """Dollars a month. ``of``: a word's price. None as soon as one part of it is not known: a part is not the price."""
    if type_ not in _BY_SIZE or size_gib is None:
        return None
    parts = [_times(of(disk(type_)), size_gib)]
    if type_ in ("gp3", "io1", "io2"):
        parts += _for_iops(of, type_, iops)
    if type_ == "gp3":
        over = None if mib_s is None else max(mib_s - INCLUDED["gp3"][1], 0)
        parts.append(_times(of(f"{disk(type_)} mib/s"), over))
    known = [part for part in parts if part is not None]
    return round(sum(known), 4) if len(known) == len(parts) else None


def _for_iops(of: Callable[[str], float | None], type_: str, iops: int | None) -> list[float | None]:
    word = f"{disk(type_)} iops"
    if iops is None:
        return [None]
    if type_ != "io2":
        return [_times(of(word), max(iops - INCLUDED.get(type_, (0, 0))[0], 0))]
    ends = (*TIERS[1:], max(iops, TIERS[-1]))
    return [_times(of(f"{word} {start}" if start else word), max(min(iops, end) - start, 0)) for start, end in zip(TIERS, ends, strict=True)]


def _times(price: float | None, count: int | None) -> float | None:
    """Nothing costs nothing, whatever the price."""
    if count == 0:
        return 0.0
    return None if price is None or count is None else price * count
