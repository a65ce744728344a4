"""How long a table keeps the entries of its log, and when the library removes those that are older.

Each commit reads the names of all of them. Left to itself, the library also looks at all of them behind every commit, to find
those that are too old: with 4,700 entries that was three quarters of what a commit costs.
"""

from collections.abc import Mapping
from typing import Final

from deltalake import PostCommitHookProperties

_EVERY: Final = 100
_RETENTION: Final = "delta.logRetentionDuration"
_USUAL_MS: Final = 30 * 24 * 3_600_000
"""What every writer of Delta takes for tables that do not say it."""


def hooks_of(version: int) -> PostCommitHookProperties | None:
    """Return what the library does behind the commit that becomes `version`; None for all that the table's properties say."""
    if version % _EVERY in {0, 1}:  # two of them: every other commit may be one of a compaction, which cleans up by itself
        return None
    return PostCommitHookProperties(cleanup_expired_logs=False)


def kept_by(vacuum_after_ms: int | None) -> Mapping[str, str]:
    """Return the property that has a table keep its log twice as long as versions can be read, if that is less than usual.

    Twice: the oldest version that can be read is made from the checkpoint before it.
    """
    if vacuum_after_ms is None or 2 * vacuum_after_ms >= _USUAL_MS:
        return {}
    return {_RETENTION: f"interval {2 * vacuum_after_ms // 1000} seconds"}
