"""
What costs money and serves nothing: snapshots whose disk is gone, and reserved addresses that nothing uses. Only ever reported. Pure.

A load balancer without a living target is none of them: telling needs its health asked of each backend, a call each.
https://cloud.google.com/compute/docs/reference/rest/v1/snapshots, https://cloud.google.com/compute/docs/reference/rest/v1/addresses
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from reaper.clouds.gcp.labels import as_tags
from reaper.clouds.gcp.moments import moment
from reaper.model.kinds.disk import Leftover
from reaper.model.resource import ResourceId

GLOBAL = "global"
"""The place of what is in no zone and no region."""

SETTLED = timedelta(minutes=15)
"""A younger snapshot may be of a disk that was not there yet when disks were listed."""

_SOURCE = re.compile(r"projects/(?P<project>[^/]+)/(?:zones|regions)/(?P<place>[^/]+)/disks/[^/]+$")


@dataclass(slots=True)
class Known:
    """Every disk of a project, by number and by link, from a listing that began at ``began_at``."""

    began_at: datetime
    numbers: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot that is there, and of which disk it is: its number ("" where not told), project, zone or region, and link."""

    leftover: Leftover
    number: str
    project: str
    place: str
    link: str


def taken(raw: Any, *, project: str, price: Callable[[str, int], float | None], given: dict[str, str] | None = None) -> Taken | None:
    """None: it is not ready (so not there, or on its way out), or does not say of what it is. ``price``: dollars a month of (location, bytes)."""
    source = _SOURCE.search(raw.source_disk)
    if raw.status != "READY" or source is None or not raw.id:
        return None
    stored = int(raw.storage_bytes) if raw.storage_bytes_status == "UP_TO_DATE" else 0
    plain = len(raw.storage_locations) == 1 and stored > 0 and raw.snapshot_type in ("", "STANDARD")  # an archived one costs other prices
    leftover = Leftover(
        id=ResourceId("gcp", project, GLOBAL, "snapshot", str(raw.id)), what="snapshot", because="", name=raw.name or None, tags=as_tags(dict(raw.labels)),
        size_gib=int(raw.disk_size_gb) or None, created_at=moment(raw.creation_timestamp), source=source[0].rpartition("/")[2],
        monthly_usd=price(raw.storage_locations[0], stored) if plain else None, given=given,
    )  # fmt: skip
    return Taken(leftover, raw.source_disk_id, source["project"], source["place"], source[0])


def orphan(snapshot: Taken, known: Known) -> Leftover | None:
    """As something left over; None: its disk is there, or may be. ``known``: of its disk's project, which was read whole."""
    made = snapshot.leftover.created_at
    there = snapshot.number in known.numbers if snapshot.number else snapshot.link in known.links
    if there or made is None or made > known.began_at - SETTLED:
        return None
    return replace(snapshot.leftover, source_gone=True, because=f"disk {snapshot.leftover.source} in {snapshot.place}, of which it is, is not there any more")


def idle_address(raw: Any, *, project: str, place: str, price: Callable[[str], float | None], given: dict[str, str] | None = None) -> Leftover | None:
    """None: something uses it, it costs nothing (an internal one), or it is not plain that it is free. ``price``: dollars a month in a region."""
    free = raw.status == "RESERVED" and not raw.users and raw.address_type in ("", "EXTERNAL") and raw.purpose in ("", "GCE_ENDPOINT")
    if not free or not raw.id:
        return None
    own = bool(raw.ip_collection) or raw.ip_version == "IPV6"  # not paid for by the hour
    return Leftover(
        id=ResourceId("gcp", project, place, "address", str(raw.id)), what="address", because="it is reserved, and nothing uses it", name=raw.name or None,
        tags=as_tags(dict(raw.labels)), created_at=moment(raw.creation_timestamp), source=raw.address or None, monthly_usd=None if own else price(place), given=given,
    )  # fmt: skip
