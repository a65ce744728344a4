"""Generates the JSON Schema of the pipeline file from the settings, for completion and checks in editors."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import SUPPORTED

SCHEMA_FILE: Final = "pipeline.schema.json"

_REFERENCE: Final = {"type": "string", "pattern": r"\$\{.+\}"}
_TYPED: Final = ("integer", "number", "boolean")


def schema() -> dict[str, Any]:
    """Return the schema as JSON values. Wherever a value is checked, a `${VAR}` reference is allowed in its place."""
    made = PipelineSettings.model_json_schema(by_alias=True, mode="validation")
    definitions = {name: _definition(name, part) for name, part in made.pop("$defs").items()}
    whole = _definition("", made)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock pipeline file",
        **{key: value for key, value in whole.items() if key != "title"},
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the text of the schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def shipped() -> str:
    """Return the text of the schema file in the installed package."""
    return resources.files("penstock.spec").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def _definition(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in part:
        return dict(_referable(part))
    properties = {key: _property(value) for key, value in part["properties"].items()}
    made = {**part, "properties": properties}
    if part["properties"].get("type", {}).get("const") in SUPPORTED:
        made["required"] = ["type", *part.get("required", [])]
    if name == "PythonSink":
        made["not"] = {"required": ["type"]}
    return made


def _property(part: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in part.items() if key not in {"title", "x-default", "x-kind", "discriminator"}}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if "anyOf" in made:
        made["anyOf"] = [_property(choice) for choice in made["anyOf"] if choice != {"type": "null"}]
        if len(made["anyOf"]) == 1:
            made = {**made.pop("anyOf")[0], **made}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), Mapping):
            made[key] = _property(made[key])
    if "patternProperties" in made:
        made["patternProperties"] = {pattern: _property(value) for pattern, value in made["patternProperties"].items()}
        made["additionalProperties"] = False
    if made.get("default", "") is None or made.get("default") == []:
        del made["default"]
    return _referable(made)


def _referable(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return `part`; if it would refuse the text of a `${VAR}` reference, a choice between both."""
    made = dict(part)
    if not ({"pattern", "enum"} & made.keys() or made.get("type") in _TYPED or made.get("const") is True):
        return made
    kept: dict[str, Any] = {key: made.pop(key) for key in ("description", "default") if key in made}
    return {**kept, "anyOf": [made, dict(_REFERENCE)]}
