"""A dedicated host is paid for whatever runs on it."""

from reaper.decide.guards.on_host import on_host
from tests.builders import facts, instance
from tests.decide.tables import check, rows


@rows([
    ("a cloud without the word", facts(), None),
    ("shared", facts(instance=instance(tenancy="default")), None),
    ("dedicated instances are billed one by one", facts(instance=instance(tenancy="dedicated")), None),
    ("on a host", facts(instance=instance(tenancy="host", host="h-1")), "dedicated host h-1"),
    ("on a host that is not named", facts(instance=instance(tenancy="host")), "tenancy host"),
    ("a host and no tenancy", facts(instance=instance(host="h-1")), "dedicated host h-1"),
    ("a new word", facts(instance=instance(tenancy="lunar")), "tenancy lunar"),
    ("a Mac", facts(instance=instance(type="mac2.metal")), "a host of its own"),
])  # fmt: skip
def test_what_is_on_a_host_is_held(given, expected):
    check(on_host, given, expected)
