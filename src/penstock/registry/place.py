"""Where a registry is and how to be let in; and what it holds: values, no client."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

SchemaKind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlace:
    """Picklable: it travels to the tasks. Several `urls` are of one registry; files are paths on every machine that asks."""

    urls: tuple[str, ...]
    name: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 10.0
    """`name`: what people are told that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as the registry gives it out, with all that it refers to, each before what refers to it."""

    schema_id: int
    kind: str
    text: str
    references: "tuple[Reference, ...]" = ()
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema under the name by which another one imports it."""

    name: str
    text: str
