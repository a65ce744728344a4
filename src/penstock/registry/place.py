"""Address and credentials of a registry, and the schemas that it returns: plain values, no client."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

SchemaKind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlace:
    """Address and credentials of one registry, with all its `urls`. Picklable, since tasks receive it.

    `name` stands for it in messages. Files are paths on every machine that sends requests.
    """

    urls: tuple[str, ...]
    name: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as the registry returns it, with all schemas that it refers to, each before those that refer to it."""

    schema_id: int
    kind: str
    text: str
    references: "tuple[Reference, ...]" = ()
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema, and the name by which another one imports it."""

    name: str
    text: str
