"""Who am I on Google Cloud, and never on the wrong one: both clouds have their metadata service at one address."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from agent.identity import Identity, IdentityError, maker
from tests.fakes.google_metadata import PATH, FakeGoogleMetadata
from tests.fakes.imds import FakeImds, ask_metadata

RESOURCE = "gcp:ml-research:us-central1-a:instance:5000000000000000001"


def test_identity_comes_from_googles_own_words() -> None:
    with FakeGoogleMetadata() as server:
        found = ask_metadata(server.endpoint)

    assert found == Identity(RESOURCE, "g2-standard-8", "metadata")
    words = ("instance/id", "project/project-id", "instance/zone", "instance/machine-type")
    assert server.asked == ["PUT /latest/api/token", *("GET %s%s" % (PATH, word) for word in words)]


def test_a_project_of_a_domain_keeps_its_colon() -> None:
    with FakeGoogleMetadata(project="example.com:research") as server:
        assert ask_metadata(server.endpoint).resource == "gcp:example.com:research:us-central1-a:instance:5000000000000000001"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("instance/id", None), ("instance/id", ""), ("instance/id", "trainer"), ("instance/id", "<html>"), ("project/project-id", None),
        ("project/project-id", ""), ("project/project-id", "a b"), ("instance/zone", None), ("instance/zone", ""), ("instance/machine-type", None),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_not_known(path: str, said: Optional[str]) -> None:
    with FakeGoogleMetadata() as server:
        server.answers[path] = said
        with pytest.raises(IdentityError):
            ask_metadata(server.endpoint)


def test_an_answer_without_googles_header_is_not_googles() -> None:
    with FakeGoogleMetadata() as server:
        server.flavor = False
        with pytest.raises(IdentityError, match="PUT /latest/api/token answered 404"):
            ask_metadata(server.endpoint)


def test_a_proxy_that_keeps_the_header_on_some_answers_only_is_told() -> None:
    with FakeGoogleMetadata() as server:
        whole = server.answer

        def partly(method: str, path: str, headers: "dict[str, str]") -> "tuple[int, str, bool]":
            status, body, _ = whole(method, path, headers)
            return status, body, path.endswith("instance/id")

        server.answer = partly  # type: ignore[method-assign]
        with pytest.raises(IdentityError, match="project/project-id is not Google's; is there a proxy"):
            ask_metadata(server.endpoint)


def test_a_service_that_answers_for_both_clouds_is_believed_for_none() -> None:
    with FakeGoogleMetadata() as server:
        server.both = True
        with pytest.raises(IdentityError, match="answers for EC2 and for Google Cloud: a proxy .*set resource in the configuration"):
            ask_metadata(server.endpoint)


def test_a_token_with_googles_header_is_no_token_of_ec2s() -> None:
    with FakeGoogleMetadata() as server:
        whole = server.answer

        def friendly(method: str, path: str, headers: "dict[str, str]") -> "tuple[int, str, bool]":
            return (200, "", True) if method == "PUT" else whole(method, path, headers)

        server.answer = friendly  # type: ignore[method-assign]

        assert ask_metadata(server.endpoint).resource == RESOURCE


def test_a_page_that_answers_everything_is_neither() -> None:
    with FakeGoogleMetadata() as server:
        server.answer = lambda method, path, headers: (200, "<html>sign in</html>", False)  # type: ignore[method-assign]
        with pytest.raises(IdentityError, match="not an identity document"):
            ask_metadata(server.endpoint)


def test_ec2_is_asked_with_its_token_whether_it_is_google() -> None:
    with FakeImds() as imds:
        seen = []
        whole = imds.get

        def get(path: str, headers: "dict[str, str]") -> "tuple[int, str]":
            seen.append((path, "x-aws-ec2-metadata-token" in headers))
            return whole(path, headers)

        imds.get = get  # type: ignore[method-assign]
        found = ask_metadata(imds.endpoint)

    assert found.resource.startswith("aws:")
    assert seen == [("/latest/dynamic/instance-identity/document", True), (PATH + "instance/id", True)]


def test_a_service_of_another_cloud_than_the_machines_own_is_not_believed() -> None:
    with FakeGoogleMetadata() as google, FakeImds() as ec2:
        for endpoint, made_by in ((google.endpoint, "aws"), (ec2.endpoint, "gcp")):
            with pytest.raises(IdentityError, match="on a machine of %s: a proxy" % made_by):
                ask_metadata(endpoint, made_by=made_by)

        assert ask_metadata(google.endpoint, made_by="gcp").resource == RESOURCE
        assert ask_metadata(ec2.endpoint, made_by="aws").resource.startswith("aws:")


@pytest.mark.parametrize(("text", "cloud"), [("Google\n", "gcp"), ("Amazon EC2\n", "aws"), ("Xen\n", None), ("QEMU\n", None), ("", None), (None, None)])
def test_the_firmware_names_the_cloud_where_it_does(tmp_path: Path, text: Optional[str], cloud: Optional[str]) -> None:
    file = tmp_path / "sys_vendor"
    if text is not None:
        file.write_text(text)

    assert maker(str(file)) == cloud
