"""Delivered offsets, shown after each batch as those of a consumer group, for sources that ask for it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.model import SourceName
from penstock.core.topics import TopicRead
from penstock.source.kafka.options import client_options
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.source.kafka.mirror import Mirror


class Mirrors:
    """The mirrors of one run. Their failures become warnings, and hold no batch back."""

    def __init__(self, sources: Mapping[SourceName, Source]) -> None:
        self._asked = {name: source for name, source in sources.items() if source.mirror_offsets_to is not None}
        self._mirrors: dict[SourceName, Mirror] = {}

    def show(self, reads: Sequence[TopicRead]) -> tuple[str, ...]:
        """Commit where every partition goes on now. Return warnings."""
        warnings = [
            self._of(name, source).show([read for read in reads if read.source == name]) for name, source in self._asked.items()
        ]
        return tuple(warning for warning in warnings if warning is not None)

    def close(self) -> None:
        for mirror in self._mirrors.values():
            mirror.close()
        self._mirrors.clear()

    def _of(self, name: SourceName, source: Source) -> "Mirror":
        from penstock.source.kafka.mirror import Mirror

        if name not in self._mirrors:
            self._mirrors[name] = Mirror(source.mirror_offsets_to or "", client_options(name, source))
        return self._mirrors[name]
