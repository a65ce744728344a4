"""Writes docs/reference/pipeline-file.md and the JSON Schema in the package from the settings. Run by `make docs`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.spec.delta import Delta
from penstock.spec.export import EventTarget, OpenLineage, OpenTelemetry
from penstock.spec.http import HTTP
from penstock.spec.iceberg import Iceberg
from penstock.spec.kafka import Kafka, RecordValue
from penstock.spec.listening import MetricsEndpoint, ServerTls
from penstock.spec.location import Account, Checkpoint, LedgerPlace, Quarantine, Route, SpoolPlace
from penstock.spec.maintenance import Compact, DeltaMaintenance, IcebergMaintenance
from penstock.spec.many_tables import Tables
from penstock.spec.merge import Merge
from penstock.spec.pipeline import PipelineSettings, Spark, Transform, Trigger
from penstock.spec.receive import (
    ClientTls,
    HttpListener,
    MqttSubscription,
    Receive,
    SyslogListener,
    SyslogUdpListener,
    TcpListener,
)
from penstock.spec.registry import Coded, Decode, DecodedValue, Encode, Registry
from penstock.spec.rule import Rule
from penstock.spec.settings import Settings
from penstock.spec.sink import SUPPORTED, Console, Memory, Parquet, PythonSink
from penstock.spec.source import Source, Watermark
from penstock.spec.state_limits import StateLimits
from penstock.spec.table import DBAPI, Cassandra, DuckDB, MySQL, PostgreSQL, Redshift, SQLite, SQLServer

PROJECT: Final = Path(__file__).parents[1]
REFERENCE: Final = PROJECT / "docs/reference/pipeline-file.md"
SCHEMA_FILE: Final = "pipeline.schema.json"
SCHEMA: Final = PROJECT / "src/penstock/spec" / SCHEMA_FILE

SECTIONS: Final[tuple[tuple[str, type[Settings]], ...]] = (
    ("The file", PipelineSettings),
    ("`spark`", Spark),
    ("`sources.<name>`", Source),
    ("`sources.<name>.watermark`", Watermark),
    ("`sources.<name>.expect.<name>`", Rule),
    ("`sources.<name>.decode`", Decode),
    ("`sources.<name>.decode.value`", DecodedValue),
    ("`sources.<name>.decode.key`", Coded),
    ("`sources.<name>.decode.registry`", Registry),
    ("`receive`", Receive),
    ("`receive.http`", HttpListener),
    ("`receive.tcp`", TcpListener),
    ("`receive.syslog`", SyslogListener),
    ("`receive.syslog_udp`", SyslogUdpListener),
    ("`receive.mqtt`", MqttSubscription),
    ("`receive.mqtt.tls`", ClientTls),
    ("`metrics`", MetricsEndpoint),
    ("`metrics.tls`, `receive.http.tls`, `receive.tcp.tls`, `receive.syslog.tls`", ServerTls),
    ("`state_limits`", StateLimits),
    ("`on_event.<name>`", EventTarget),
    ("`opentelemetry`", OpenTelemetry),
    ("`openlineage`", OpenLineage),
    ("`transform`", Transform),
    ("`sinks.<name>` with `type: parquet`", Parquet),
    ("`sinks.<name>.accounts.<name>`", Account),
    ("`sinks.<name>.route`", Route),
    ("`sinks.<name>` with `type: delta`", Delta),
    ("`sinks.<name>.maintenance` with `type: delta`", DeltaMaintenance),
    ("`sinks.<name>` with `type: iceberg`", Iceberg),
    ("`sinks.<name>.maintenance` with `type: iceberg`", IcebergMaintenance),
    ("`sinks.<name>.maintenance.compact`", Compact),
    ("`sinks.<name>` with `type: sqlite`", SQLite),
    ("`sinks.<name>` with `type: duckdb`", DuckDB),
    ("`sinks.<name>` with `type: postgres`", PostgreSQL),
    ("`sinks.<name>` with `type: mysql`", MySQL),
    ("`sinks.<name>` with `type: redshift`", Redshift),
    ("`sinks.<name>` with `type: sqlserver`", SQLServer),
    ("`sinks.<name>` with `type: cassandra`", Cassandra),
    ("`sinks.<name>.tables`", Tables),
    ("`sinks.<name>.merge`", Merge),
    ("`sinks.<name>` with `type: dbapi`", DBAPI),
    ("`sinks.<name>` with `type: kafka`", Kafka),
    ("`sinks.<name>.value`", RecordValue),
    ("`sinks.<name>.encode`", Encode),
    ("`sinks.<name>` with `type: http`", HTTP),
    ("`sinks.<name>` with `type: console`", Console),
    ("`sinks.<name>` with `type: memory`", Memory),
    ("`sinks.<name>` with `python`", PythonSink),
    ("`quarantine`", Quarantine),
    ("`trigger`", Trigger),
    ("`checkpoint`", Checkpoint),
    ("`ledger`", LedgerPlace),
    ("`spool`", SpoolPlace),
)
_KINDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}

_HEAD: Final = f"""# The pipeline file

Made from the settings by `make docs`; do not edit. The same as JSON Schema is in the package (`penstock/spec/{SCHEMA_FILE}`),
and `penstock init` puts a copy beside the file it makes.

- **Relative paths** and relative URLs (`file://./x`, `sqlite:///x.db`) are relative to the pipeline file. `sqlite:////x.db` is
  absolute. A scheme that is not known is an error: name what is mounted by its path, `/dbfs/x` for `dbfs:/x`, and write `./a:b`
  for a directory with a colon in its name. The `path` of a source may be any URL that Spark knows. `checkpoint` may not: Penstock
  reads it, too, in a directory, S3, Azure, Google Cloud Storage or HDFS.
- **`${{VAR}}`** is replaced from the environment, `${{VAR:-default}}` if it is unset or empty; without default an unset variable
  is an error. Inside `{{ }}` and `[ ]` it needs quotes. `$${{` stands for a plain `${{`. What came from the environment is not
  shown where it can be a secret: options and Spark settings are hidden, URLs are shown without password and query values, SQL is
  shown with the reference in place of the value. Where Spark shows its settings is in [who can see what](../SECURITY.md).
- **Sizes** have a unit, or are bytes: `128MB` is 128,000,000 bytes, `128MiB` is 134,217,728. **Durations** need a unit:
  `500ms`, `10s`, `5m`, `2h`, `1d`.
- **`--set key.path=value`** of the commands replaces one value; the value is read as YAML. Below `options` and `conf` the rest of
  the path is one key: `--set spark.conf.spark.sql.shuffle.partitions=8`.
- Unknown keys, wrong types, keys given twice and impossible combinations are errors that name file, line and key (exit code 2).
"""


def reference_text() -> str:
    """Return the text of the reference page."""
    return "\n".join([_HEAD, *(line for title, kind in SECTIONS for line in _section(title, kind)), *_sink_types()]) + "\n"


def _section(title: str, kind: type[Settings]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{(kind.__doc__ or '').strip()}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    made = kind.model_json_schema(by_alias=True)
    for key in kind.valid_keys():
        part = made["properties"][key]
        needed = key in made.get("required", ())
        yield f"| `{key}` | {_value(part)} | {'**needed**' if needed else _default(part)} | {part['description']} |"
    yield ""


def _sink_types() -> Iterator[str]:
    yield "## Types of sinks\n"
    yield f"This version has {', '.join(f'`{kind}`' for kind in SUPPORTED)} and `python: package.module:Class`."


def _default(part: Mapping[str, Any]) -> str:
    default = part.get("x-default", part.get("default"))
    return "" if default is None or default == [] else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _value(part: Mapping[str, Any]) -> str:
    choices = [choice for choice in part.get("anyOf", [part]) if choice.get("type") != "null"]
    first = choices[0]
    if first.get("type") == "string" and any("$ref" in choice for choice in choices):
        return "text or mapping"
    if "x-kind" in first:
        return str(first["x-kind"])
    if "$ref" in first:
        return "`exactly_once`, `at_least_once`" if "Guarantee" in first["$ref"] else "mapping"
    if "enum" in first or "const" in first:
        named = ["`true`" if choice is True else f"`{choice}`" for choice in first.get("enum", [first.get("const")])]
        if any(choice.get("type") == "object" or "$ref" in choice for choice in choices):
            named.append("mapping")
        return ", ".join(named)
    return _KINDS[first["type"]]


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


if __name__ == "__main__":
    REFERENCE.write_text(reference_text(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
