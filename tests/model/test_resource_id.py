"""An id is written in one way and read back as what it was."""

import pytest

from agent.report import is_resource_id
from reaper.model.resource import ResourceId

GOOD = [
    ("aws:123456789012:eu-west-1:instance:i-0abc", ResourceId("aws", "123456789012", "eu-west-1", "instance", "i-0abc")),
    ("gcp:ml-research:us-central1-a:instance:5000000000000000001", ResourceId("gcp", "ml-research", "us-central1-a", "instance", "5000000000000000001")),
    ("gcp:example.com:research:us-central1-a:instance:7", ResourceId("gcp", "example.com:research", "us-central1-a", "instance", "7")),
    ("gcp:a.example.co.uk:research:us-central1-a:instance:7", ResourceId("gcp", "a.example.co.uk:research", "us-central1-a", "instance", "7")),
]

BAD = [
    "", "gcp", "gcp:research:us-central1-a:instance", "gcp:example:research:us-central1-a:instance:7", "aws:example.com:research:us-central1-a:instance:7",
    "gcp:example.com:a:b:us-central1-a:instance:7", "gcp:example.com::us-central1-a:instance:7", "gcp:.com:research:us-central1-a:instance:7",
    "gcp:example.:research:us-central1-a:instance:7", "gcp:EXAMPLE.com:research:us-central1-a:instance:7", "gcp:research:us central1:instance:7",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), GOOD, ids=[row[0] for row in GOOD])
def test_it_is_read_back_and_an_agent_may_send_it(text: str, expected: ResourceId) -> None:
    assert ResourceId.parse(text) == expected
    assert str(expected) == text
    assert is_resource_id(text)


@pytest.mark.parametrize("text", BAD, ids=[text or "empty" for text in BAD])
def test_what_is_not_one_is_refused_on_both_sides(text: str) -> None:
    with pytest.raises(ValueError, match="is not a resource id"):
        ResourceId.parse(text)
    assert not is_resource_id(text)


def test_a_domain_alone_is_still_one_account() -> None:
    assert ResourceId.parse("gcp:example.com:us-central1-a:instance:7").account == "example.com"
