"""Stop protection is somebody's word; unread and unreadable are taken for it."""

from reaper.decide.guards.stop_protected import UNREAD, stop_protected
from reaper.model.kinds.instance import Protections
from tests.builders import facts
from tests.decide.tables import check, rows


@rows([
    ("read and off", facts(), None),
    ("on", facts(protections=Protections(stop_protected=True)), "stop protection is on"),
    ("not read yet", facts(protections=None), UNREAD),
    ("refused", facts(protections=Protections(because="UnauthorizedOperation")), "UnauthorizedOperation"),
    ("not readable for no reason given", facts(protections=Protections()), "no reason given"),
])  # fmt: skip
def test_stop_protection_holds(given, expected):
    check(stop_protected, given, expected)
