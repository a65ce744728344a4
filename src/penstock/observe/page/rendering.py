"""Renders the templates. Every value is escaped; only what this module marks as safe is markup."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from penstock.observe.condition import State
from penstock.support import formatting
from penstock.support.printable import printable
from penstock.support.secret import scrub

_QUOTED = re.compile(r"`([^`]+)`")
LONGEST_TEXT = 2_000
"""Longer texts, such as an error that quotes a statement, are cut off."""


@cache
def style() -> str:
    """Return the style sheet, which stands in every page."""
    return (files("penstock.observe.page") / "templates" / "style.css").read_text(encoding="utf-8")


@cache
def content_policy() -> str:
    """Return the Content-Security-Policy: no script, nothing from elsewhere, and this very style sheet."""
    digest = b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'self'"


def render(template: str, values: Mapping[str, object], *, now_ms: int) -> str:
    """Return the page that a template makes of `values`."""
    return _environment().get_template(template).render(**values, now_ms=now_ms, style=Markup(style()), policy=content_policy())  # noqa: S704


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("penstock.observe.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": formatting.count,
        "size": formatting.size,
        "duration": formatting.duration,
        "moment": formatting.moment,
        "zone": _zone,
        "dropped": formatting.dropped,
        "iso": _iso,
        "rate": _rate,
        "short": _short,
        "prose": _prose,
        "digest": lambda digest: f"{digest:016x}",
    }
    environment.globals |= {"ago": lambda then_ms, now_ms: formatting.ago(then_ms, now_ms=now_ms), "State": State}
    environment.finalize = _plain
    return environment


def _plain(value: Any) -> Any:
    """Return what a template puts out, without the control characters that could reorder or hide text."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc).isoformat(timespec="seconds")


def _zone(time_ms: int) -> str:
    """Return the time zone that `moment` uses: a page is also read elsewhere."""
    return datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc).astimezone().strftime("UTC%z").removesuffix("+0000")


def _rate(rows_per_s: float | None) -> str:
    """Return rows per second as people read them; nothing where no time is known."""
    if rows_per_s is None:
        return ""
    return formatting.rate(rows_per_s)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _prose(text: str, file: str) -> Markup:
    """Return a sentence with its commands as code, and with the pipeline file in them. Everything else is escaped."""
    whole = formatting.commands_with_file(_short(scrub(text), LONGEST_TEXT), file)
    parts = _QUOTED.split(printable(whole))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else escape(part) for number, part in enumerate(parts))
