"""The options of a source `format: penstock`, and what is wrong with them."""

import re
import shlex
from collections.abc import Iterator, Mapping

from penstock.spec.complaint import Complaint
from penstock.spec.settings import nearest

SINK, ACCOUNTS, STARTING, FAIL_ON_LOSS = "sink", "accounts", "startingBatch", "failOnDataLoss"
MOST_BATCHES, MOST_FILES, MOST_BYTES = "maxBatchesPerTrigger", "maxFilesPerTrigger", "maxBytesPerTrigger"
_KNOWN = (SINK, ACCOUNTS, STARTING, FAIL_ON_LOSS, MOST_BATCHES, MOST_FILES, MOST_BYTES)
_COUNT, _BATCH = re.compile(r"[1-9]\d{0,17}"), re.compile(r"earliest|latest|0|[1-9]\d{0,17}")


def chain_complaints(options: Mapping[str, str], *, path: str | None) -> Iterator[Complaint]:
    """Yield what is wrong with the options of a table that the pipeline of the file at `path` fills."""
    known = {name.lower(): name for name in _KNOWN}
    for given, value in options.items():
        name = known.get(given.lower())
        if name is None:
            guess = nearest(given, _KNOWN)
            remedy = (f"Did you mean {guess}? " if guess else "") + f"Known are {', '.join(_KNOWN)}."
            yield Complaint(message="is not an option of format: penstock", remedy=remedy, at=(given,))
        elif name in {SINK, ACCOUNTS}:
            if not all(part.strip() for part in value.split(",")):
                what = "the name of a sink" if name == SINK else "names of accounts with commas in between"
                yield Complaint(message=f"should be {what}, found {value!r}", remedy="Leave it out for all.", at=(given,))
        elif name == STARTING and not _BATCH.fullmatch(value.lower()):
            yield Complaint(
                message=f"should be earliest, latest or the number of a batch, found {value!r}",
                remedy=f"`penstock history {shlex.quote(path or 'flights.yaml')}` lists the batches.",
                at=(given,),
            )
        elif name == FAIL_ON_LOSS and value.lower() not in {"true", "false"}:
            yield Complaint(message=f"should be true or false, found {value!r}", remedy="Leave it out for true.", at=(given,))
        elif name in {MOST_BATCHES, MOST_FILES, MOST_BYTES} and not _COUNT.fullmatch(value):
            yield Complaint(
                message=f"should be a whole number from 1 on, found {value!r}", remedy="Write it in digits.", at=(given,)
            )
