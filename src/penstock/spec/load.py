"""Loads settings from a pipeline file, with errors that name file, line and key."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from penstock.errors import Usage
from penstock.spec.complaint import Complaint, KeyPath
from penstock.spec.document import Document, parse, scalar
from penstock.spec.interpolation import interpolate
from penstock.spec.overrides import overridden, override
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.validation import complaints, key_path, sentence
from penstock.support.secret import Interpolated

_RETYPED: Final[Mapping[str, type | tuple[type, ...]]] = {
    "int_type": int,
    "bool_type": bool,
    "float_type": (int, float),
    "literal_error": bool,
}


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> PipelineSettings:
    """Return the settings of the pipeline file at `path`, with each `key.path=value` of `overrides` in its place.

    Variables come from this process's environment. Relative places become absolute, relative to the file. Raises Usage with every
    mistake that was found, each with file, line and key.
    """
    file = os.fspath(path)
    document = override(parse(_read(file), file=file), overrides)
    content = interpolate(document, os.environ).content
    context = {"base": Path(file).absolute().parent}
    try:
        return _validated(content, context)
    except ValidationError as error:
        raise _usage(document, complaints(error, content), overrides) from None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Usage(
            f"There is no pipeline file {file}.", remedy="Check the path, or make a project with `penstock init`."
        ) from None
    except IsADirectoryError:
        raise Usage(
            f"{file} is a directory, not a pipeline file.", remedy=f"Name the file in it: {file.rstrip('/')}/….yaml."
        ) from None
    except UnicodeDecodeError as error:
        raise Usage(f"{file} is not UTF-8 text (byte {error.start}).", remedy="Save it as UTF-8.") from None
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error.strerror}.", remedy="Check its permissions.") from None


def _validated(content: dict[str, Any], context: dict[str, Any]) -> PipelineSettings:
    try:
        return PipelineSettings.model_validate(content, context=context)
    except ValidationError as error:
        if not _retype(content, error):
            raise
    return PipelineSettings.model_validate(content, context=context)


def _retype(content: dict[str, Any], error: ValidationError) -> bool:
    """Let `${N}` stand for a number or a truth value where one is expected. Return whether anything was changed."""
    changed = False
    for detail in error.errors(include_url=False):
        value = detail["input"]
        if isinstance(value, Interpolated) and detail["type"] in _RETYPED:
            typed = _typed(str(value))
            if isinstance(typed, _RETYPED[detail["type"]]):
                _replace(content, key_path(detail["loc"], content), typed)
                changed = True
    return changed


def _typed(text: str) -> Any:
    """Return the value that `text` has in YAML, or `text` if it is not YAML, as a password can be."""
    try:
        return scalar(text)
    except Usage:
        return text


def _replace(content: Any, path: KeyPath, value: Any) -> None:
    for step in path[:-1]:
        content = content[step]
    content[path[-1]] = value


def _usage(document: Document, found: Sequence[Complaint], overrides: Sequence[str]) -> Usage:
    if len(found) == 1:
        return Usage(f"{_located(document, found[0], overrides)}.", remedy=found[0].remedy)
    lines = [f"{_located(document, complaint, overrides)}. {complaint.remedy}" for complaint in found]
    return Usage(
        f"{document.file} has {len(found)} mistakes:\n" + "\n".join(f"  {line}" for line in lines),
        remedy="Correct them and run `penstock check` again.",
    )


def _located(document: Document, complaint: Complaint, overrides: Sequence[str]) -> str:
    given = overridden(complaint.at, overrides)
    where = f"--set {given.partition('=')[0]}" if given else f"{document.file}:{document.line(complaint.at)}"
    return f"{where}: {sentence(complaint)}"
