"""Base class of all settings: frozen, strict, no unknown keys, readable errors, hidden secrets."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from penstock.core.model import Json
from penstock.errors import Usage
from penstock.spec.complaint import Complaint, complaint_error, complaints, complaints_error, sentence
from penstock.support.secret import shown_text


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that was most likely meant, None if none is similar."""
    candidates = list(valid)
    close = difflib.get_close_matches(name.lower(), [candidate.lower() for candidate in candidates], n=1, cutoff=0.65)
    return next((candidate for candidate in candidates if close and candidate.lower() == close[0]), None)


class Settings(BaseModel):
    """Base of all settings. Built from a pipeline file, or in code with the same names; wrong values raise Usage."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                found = complaints(error, values)
                message = "\n".join(f"{type(self).__name__}: {sentence(complaint)}." for complaint in found)
                raise Usage(message, remedy=found[0].remedy) from None

        __init__.__pydantic_base_init__ = True

    def __init_subclass__(cls, *, init: bool = True) -> None:
        """Take `init=False`, by which type checkers give a class the `__init__` of its base and make none of its fields."""
        super().__init_subclass__()

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys that a pipeline file may use here, in the order of the reference."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and cls.model_config.get("extra") == "forbid":
            known = {*cls.valid_keys(), *cls.model_fields}
            unknown = [unknown_key(str(key), cls.valid_keys()) for key in values if key not in known]
            if unknown:
                raise complaints_error(unknown)
        return values

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in self:
            yield name, _hidden(value, name)

    def shown(self) -> dict[str, Json]:
        """Return these settings as JSON by the keys of the pipeline file, with every secret masked."""
        fields = type(self).model_fields
        return {fields[name].alias or name if name in fields else name: _shown(value, name) for name, value in self}

    def given(self) -> Iterator[tuple[str, Json]]:
        """Yield the settings that are not the default by their dotted keys, as JSON without secrets."""
        shown = self.shown()
        for name, value in self:
            field = type(self).model_fields.get(name)
            key = name if field is None else field.alias or name
            is_default = field is not None and not field.is_required() and value == field.default and key != "type"
            if not is_default and value is not None and value not in ({}, ()):
                yield from _given(key, value, shown[key])


class OneKey(Settings):
    """Base of settings that take exactly one of their keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
    replaced_by: ClassVar[str] = ""
    """What to say of replacing the key on the command line, where several are given."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise self._not_one(given)
        return self

    def _not_one(self, given: Sequence[str]) -> PydanticCustomError:
        """Return the complaint about settings with the keys `given`, of which there are none or several."""
        message = f"has {' and '.join(given)}" if given else "is empty"
        replaced = self.replaced_by if given else ""
        return complaint_error(message, remedy=f"Give exactly one of {', '.join(type(self).model_fields)}.{replaced}")


_MANY = 20
UNKNOWN = "is not a known key"


def unknown_key(key: str, valid: Iterable[str]) -> Complaint:
    """Return the complaint about a key that does not exist. Names the nearest one, or all: of many only the nearest."""
    keys = list(valid)
    guess = nearest(key, keys)
    listed = f"The keys here are: {', '.join(keys)}."
    remedy = listed if guess is None else f"Did you mean {guess}?" if len(keys) > _MANY else f"Did you mean {guess}? {listed}"
    return Complaint(message=UNKNOWN, remedy=remedy, at=(key,))


def _given(key: str, value: object, shown: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, Settings):
        yield from ((f"{key}.{name}", text) for name, text in value.given())
    elif isinstance(value, Mapping) and isinstance(shown, dict):
        for name, item in value.items():
            yield from _given(f"{key}.{name}", item, shown[str(name)])
    else:
        yield key, shown


def _shown(value: object, name: str) -> Json:
    if isinstance(value, Settings):
        return value.shown()
    if isinstance(value, Mapping):
        return {str(key): _shown(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, name) for item in value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return shown_text(value, name=name)
    return value if isinstance(value, bool | int | float) else None


def _hidden(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return {key: _hidden(item, str(key)) for key, item in value.items()}
    return shown_text(value, name=name) if isinstance(value, str) and not isinstance(value, Enum) else value
