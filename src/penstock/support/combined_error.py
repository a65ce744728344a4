"""One error in place of several that ended the same step, with all their messages and the class of the most urgent one."""

import builtins
from collections.abc import Sequence
from itertools import islice

from penstock import errors
from penstock.errors import Failed, Fenced, NotPublishedYet, OutcomeUnknown, PenstockError, PublishFailed, Refused, Usage

_SHOWN = 5


def urgency(error: PenstockError) -> int:
    """Return the rank of `error`. 0, the most urgent, is a newer run; then come errors that need an act, then passing ones."""
    order = (
        isinstance(error, Fenced),
        isinstance(error, Refused),
        isinstance(error, Usage),
        isinstance(error, Failed) and type(error) not in {Failed, PublishFailed},
        isinstance(error, Failed),
        isinstance(error, NotPublishedYet),
        isinstance(error, OutcomeUnknown),
    )
    return next((at for at, holds in enumerate(order) if holds), len(order))


def merge(found: Sequence[PenstockError]) -> PenstockError:
    """Return the error to raise for all of `found`: the only one, or one that holds each message and remedy once.

    It shows at most five of them. `__cause__` holds all of them on Python 3.11 and newer, before that only the most urgent one.
    """
    ranked = sorted(found, key=urgency)
    distinct = list({str(error): error for error in ranked}.values())
    if len(distinct) == 1:
        return distinct[0]
    rest = [f"{len(distinct) - _SHOWN} more errors like these."] if len(distinct) > _SHOWN else []
    messages = " ".join([*(error.message for error in distinct[:_SHOWN]), *rest])
    return join(ranked, message=messages)


def join(ranked: Sequence[PenstockError], *, message: str) -> PenstockError:
    """Return an error of the class of the first of `ranked`, with `message` and the remedies and causes of all."""
    remedies = dict.fromkeys(error.remedy for error in ranked)
    # The class is one of penstock.errors: docs/ERRORS.md names no others.
    kind: type[PenstockError] = next(one for one in type(ranked[0]).__mro__ if vars(errors).get(one.__name__) is one)
    joined = kind(message, remedy=" ".join(islice(remedies, _SHOWN))).lacking(ranked[0].lacks)
    group = getattr(builtins, "ExceptionGroup", None)  # since Python 3.11
    joined.__cause__ = ranked[0] if group is None else group("several errors", list(ranked))
    return joined
