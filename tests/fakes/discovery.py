"""
Google's own description of Compute Engine v1, and of what is asked beside it, as checks on what a fake says and is asked.

The discovery document ships inside google-api-python-client, so no network is needed. It is an old dialect of JSON
Schema: bare references, ``required: true`` on parameters, 64-bit numbers as text. A field or a parameter that it does
not know is a breach, so that a fake can drift neither from Google nor into wishful thinking.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft7Validator

Json = dict[str, Any]

# Parameters of every method. https://cloud.google.com/apis/docs/system-parameters
COMMON = frozenset({"alt", "fields", "key", "prettyPrint", "quotaUser", "userIp", "access_token", "callback", "oauth_token", "uploadType", "upload_protocol", "$.xgafv", "$alt"})


class Breach(AssertionError):
    """What was said or asked is not in Google's document."""


BESIDE = {"cloudbilling": "cloudbilling.v1", "cloudresourcemanager": "cloudresourcemanager.v3", "cloudkms": "cloudkms.v1"}
"""Other services of Google's, by the first word of their methods."""


class Discovery:
    """
    The checks that `reaper.demo.compute_server` calls, by one of Google's documents; what is of another goes to that. ``seen``:
    names of the methods that were checked.
    """

    def __init__(self, document: str = "compute.v1", seen: set[str] | None = None) -> None:
        self._document = _document(document)
        self._definitions = definitions(document)
        self._methods = _methods(document)
        self._validators: dict[str, Draft7Validator] = {}
        self._named = document
        self._others: dict[str, Discovery] = {}
        self.seen: set[str] = set() if seen is None else seen

    def _of(self, method: str) -> "Discovery":
        document = BESIDE.get(method.partition(".")[0], "compute.v1")
        if document == self._named:
            return self
        return self._others.setdefault(document, Discovery(document, self.seen))

    def knows(self, method: str) -> bool:
        return method in self._of(method)._methods

    def request(self, method: str, verb: str, path: str, query: Mapping[str, str], body: Json | None) -> None:
        if self._of(method) is not self:
            self._of(method).request(method, verb, path, query, body)
            return
        known = self._methods.get(method)
        if known is None:
            raise Breach(f"{method} is not a method of {self._named}")
        pattern = re.compile("/" + self._document["servicePath"] + re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(known["flatPath"])))
        found = pattern.fullmatch(unquote(path))
        if known["httpMethod"] != verb or found is None:
            raise Breach(f"{method} is {known['httpMethod']} {known['flatPath']} and not {verb} {path}")
        parameters: Json = known.get("parameters", {})
        wrong = [f"path {name}={value!r}" for name, value in found.groupdict().items() if name in parameters and not _fits(parameters[name], value)]
        for name, value in query.items():
            if name in COMMON:
                continue
            if name not in parameters or parameters[name]["location"] != "query":
                wrong.append(f"unknown parameter {name}")
            elif not _fits(parameters[name], value):
                wrong.append(f"{name}={value!r}")
        wrong += [f"missing {n}" for n, p in parameters.items() if p.get("required") and p["location"] == "query" and n not in query]
        if (body is not None) != ("request" in known):
            wrong.append("a body where there is none, or none where there is one")
        elif body is not None:
            wrong += self._errors(known["request"]["$ref"], body)
        if wrong:
            raise Breach(f"{method}: {'; '.join(wrong)}")
        self.seen.add(method)

    def answer(self, method: str, body: Json) -> None:
        one = self._of(method)
        one.resource(one._methods[method]["response"]["$ref"], body)

    def resource(self, schema: str, body: Json) -> None:
        wrong = self._errors(schema, body)
        if wrong:
            raise Breach(f"{schema}: {'; '.join(wrong[:5])}")

    def _errors(self, schema: str, body: Json) -> list[str]:
        if schema not in self._validators:
            self._validators[schema] = Draft7Validator({"definitions": self._definitions, "$ref": f"#/definitions/{schema}"})
        return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in self._validators[schema].iter_errors(body)]


def _fits(parameter: Json, value: str) -> bool:
    match parameter.get("type"):
        case "boolean":
            return value in ("true", "false")
        case "integer":
            return value.isdigit() and int(value) <= int(parameter.get("maximum", 2**63))
        case _:
            return re.fullmatch(parameter.get("pattern", ".*"), value, re.S) is not None


@cache
def _document(name: str = "compute.v1") -> Json:
    file = resources.files("googleapiclient") / "discovery_cache" / "documents" / f"{name}.json"
    document: Json = json.loads(file.read_text(encoding="utf-8"))
    return document


@cache
def definitions(document: str = "compute.v1") -> Json:
    return {name: _converted(schema) for name, schema in _document(document)["schemas"].items()}


@cache
def _methods(document: str = "compute.v1") -> dict[str, Json]:
    found: dict[str, Json] = {}
    waiting = [_document(document)]
    while waiting:
        holder = waiting.pop()
        found |= {m["id"]: m for m in holder.get("methods", {}).values()}
        waiting += holder.get("resources", {}).values()
    return found


def _converted(schema: Json) -> Json:
    if "$ref" in schema:
        return {"$ref": f"#/definitions/{schema['$ref']}"}
    made: Json = {key: schema[key] for key in ("enum", "pattern") if key in schema}
    if schema.get("type") not in (None, "any"):
        made["type"] = schema["type"]
    if schema.get("type") == "string" and schema.get("format") in ("uint64", "int64"):
        made["pattern"] = r"^-?\d+$"
    if "properties" in schema:
        made["properties"] = {name: _converted(value) for name, value in schema["properties"].items()}
        made["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _converted(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = _converted(schema["items"])
    return made
