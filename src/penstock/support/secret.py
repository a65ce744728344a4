"""Values that must not be shown: credentials in URLs, and options whose text came from the environment.

`Secret` is a `str`, so every client accepts it unchanged; only its `repr` is masked. Everything that Penstock prints goes through
`shown_text`, `redact` or `scrub`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MASK = "***"

_URL_PASSWORD = re.compile(r"(://[^:/@\s]*:)(.*)@")
_WHOLE_URL_PASSWORD = re.compile(r"\s*[a-zA-Z][a-zA-Z0-9+.-]*" + _URL_PASSWORD.pattern, re.DOTALL)
"""For a text that is one URL and nothing else: a line break in it does not end the password."""
_BARE_PASSWORD = re.compile(r"(?<![^\s'\"=(/])([^\s:/@'\"]+:)(?!/)(\S*)@")
"""Matches `user:password@host` without a scheme, as users write who forget it."""
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?=://)")
_QUERY = re.compile(r"([?&])([^=&#\s]+)=([^&#\s]*)")
_ASSIGNED = re.compile(r"(?i)\b(password|passwd|pwd|accountkey|sharedaccesskey|secret|token)=([^;&\s]+)")
_SECRET_NAME = re.compile(
    r"(?i)pass(word|wd|phrase)?$|pwd$|secret|token|credential|(access|account|shared|private|api|keystore)[._-]?key|key[._-]pem$|jaas\.config$"
)
_HARMLESS_QUERY = frozenset({"application_name", "cache", "connect_timeout", "endpoint", "mode", "region", "ssl_mode", "sslmode"})
SHORTEST_SCRUBBED = 6
"""Shorter secrets are not scrubbed: they occur in many words."""

_known: set[str] = set()


@dataclass(frozen=True, slots=True)
class _Given:
    """What the environment gave to a text of the pipeline file: the values in it, and the text with references in their place."""

    values: frozenset[str]
    shown: str


_given: dict[str, _Given] = {}
"""By the text that the validators get, which turn it into a plain string."""


class Interpolated(str):
    """Text of the pipeline file in which a `${VAR}` was replaced."""

    __slots__ = ()


class Secret(Interpolated):
    """Text that came from the environment: usable as a plain string, masked in its `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


class SecretSQL(Secret):
    """SQL with values of the environment in it. Its `repr` is the SQL of the pipeline file, `${VAR}` in place of each value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self.shown)

    @property
    def shown(self) -> str:
        """The SQL of the pipeline file; only MASK in a process that did not load that file."""
        given = _given.get(self)
        return MASK if given is None else redact(given.shown)


def redact(url: str) -> str:
    """Return `url` without password, query values and `password=…` parts; user, host and path stay readable."""
    whole = _WHOLE_URL_PASSWORD.match(url)
    text = f"{url[: whole.start(2)]}{MASK}{url[whole.end(2) :]}" if whole else url
    text = _URL_PASSWORD.sub(rf"\g<1>{MASK}@", text)
    text = _BARE_PASSWORD.sub(rf"\g<1>{MASK}@", text)
    text = _QUERY.sub(_redact_query, text)
    return _ASSIGNED.sub(rf"\g<1>={MASK}", text)


def _redact_query(found: re.Match[str]) -> str:
    return found[0] if found[2].lower() in _HARMLESS_QUERY else f"{found[1]}{found[2]}={MASK}"


def scheme_only(url: str) -> str:
    """Return what may be shown of a text that is no parsable URL: its scheme at most, for a password may be anywhere in it."""
    found = _SCHEME.match(url)
    return f"{found[0]}://…" if found else "a text without scheme://"


def looks_secret(name: str) -> bool:
    """Return whether an option of this name holds a credential, rather than the path of a file that holds one."""
    return _SECRET_NAME.search(name) is not None and not name.lower().endswith("_file")


def holds_secret(name: str, text: str) -> bool:
    """Return whether the value `text` of option `name` must not be shown, because of its name, its origin, or a part of it."""
    return isinstance(text, Secret) or looks_secret(name) or redact(text) != text


def shown_text(text: str, *, name: str = "") -> str:
    """Return what may be shown of the value `text` of option `name`."""
    if isinstance(text, SecretSQL):
        return text.shown
    return MASK if isinstance(text, Secret) or looks_secret(name) else redact(text)


def remember(text: str) -> None:
    """Make `scrub` mask `text` (a secret, or a URL whose password is one) in this process from now on."""
    found = _WHOLE_URL_PASSWORD.match(text) or _URL_PASSWORD.search(text)
    secrets = [text] if isinstance(text, Secret) and "://" not in text else [found[2]] if found else []
    for secret in map(str, secrets):
        if len(secret) >= SHORTEST_SCRUBBED:
            _known.update((secret, repr(secret)[1:-1]))  # messages quote by `repr`, which escapes


def remember_options(options: Mapping[str, object]) -> None:
    """Call `remember` for every option, at any depth, that came from the environment or is named like a credential."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            remember_options(value)
        elif isinstance(value, list | tuple):
            for item in value:
                remember_options({name: item})
        elif isinstance(value, str) and (isinstance(value, Secret) or looks_secret(name)):
            remember(Secret(value))


def remember_given(text: str, values: Iterable[str], *, shown: str) -> None:
    """Record that `text` contains `values` from the environment, and that `shown` is the text with references to them."""
    if text:
        _given[text] = _Given(frozenset(values), shown)


def values_in(text: str) -> frozenset[str]:
    """Return the environment's values in a text of a pipeline file, such as a query."""
    return _given[text].values if text in _given else frozenset()


def is_from_environment(text: str) -> bool:
    """Return whether the value `text` of a pipeline file came from the environment."""
    return isinstance(text, Secret) or text in _given


def scrub(message: str) -> str:
    """Return `message` (an error text from anywhere) without the secrets known to this process."""
    text = redact(message)
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
