"""One error in place of several that ended the same step: it says them all, and its class is that of the one to act on first."""

import builtins
from collections.abc import Sequence
from itertools import islice

from penstock import errors
from penstock.errors import Failed, Fenced, OutcomeUnknown, PenstockError, PublishFailed, Refused, Retryable, Usage

_SHOWN = 5


def urgency(error: PenstockError) -> int:
    """Its place among errors that happened together, 0 the first: a newer run, then what needs an act, then what may pass."""
    passing = isinstance(error, PublishFailed) and isinstance(error.__cause__, Retryable)
    order = (
        isinstance(error, Fenced),
        isinstance(error, Refused),
        isinstance(error, Usage),
        isinstance(error, Failed) and type(error) not in {Failed, PublishFailed},
        isinstance(error, Failed) and not passing,
        passing,
        isinstance(error, OutcomeUnknown),
    )
    return next((at for at, holds in enumerate(order) if holds), len(order))


def merge(found: Sequence[PenstockError]) -> PenstockError:
    """The error to raise for all of `found`: the only one, or one that says each message and remedy once.

    At most five are told; `__cause__` holds all of them on Python 3.11 and newer, the most urgent one before.
    """
    ranked = sorted(found, key=urgency)
    distinct = list({str(error): error for error in ranked}.values())
    if len(distinct) == 1:
        return distinct[0]
    rest = [f"{len(distinct) - _SHOWN} more errors like these."] if len(distinct) > _SHOWN else []
    messages = " ".join([*(error.message for error in distinct[:_SHOWN]), *rest])
    return join(ranked, message=messages)


def join(ranked: Sequence[PenstockError], *, message: str) -> PenstockError:
    """An error that says `message`, of the class of the first of `ranked`, with the remedies and causes of all of them."""
    remedies = dict.fromkeys(error.remedy for error in ranked)
    joined = _public(type(ranked[0]))(message, remedy=" ".join(islice(remedies, _SHOWN)))
    joined.__cause__ = _group(ranked)
    return joined


def _public(kind: type[PenstockError]) -> type[PenstockError]:
    """The class as people know it: a module's own refinement of it is no name of docs/ERRORS.md."""
    known: type[PenstockError] = next(one for one in kind.__mro__ if vars(errors).get(one.__name__) is one)
    return known


def _group(found: Sequence[PenstockError]) -> BaseException:
    group = getattr(builtins, "ExceptionGroup", None)  # since Python 3.11
    grouped: BaseException = found[0] if group is None else group("several errors", list(found))
    return grouped
