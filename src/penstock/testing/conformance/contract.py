"""All tests that every sink must pass in one process, and the whole suite for a sink derived from `penstock.OwnSink`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.sink.own import OwnSink
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance.crashes import CrashContract
from penstock.testing.conformance.identity import IdentityContract
from penstock.testing.conformance.publishing import PublishContract, RaceContract, StagingLossContract
from penstock.testing.conformance.rig import DAMAGES, PIPELINE, Row, SinkRig
from penstock.testing.conformance.staging import StageContract, SweepContract
from penstock.testing.conformance.verifying import VerifyBesideDriverContract, VerifyContract


class SinkContract(StageContract, PublishContract, RaceContract, SweepContract, VerifyContract):
    """Subclass it as `Test…` in a module with a fixture `rig` that returns a `SinkRig` on an empty directory."""


class OwnSinkRig(SinkRig):
    """Give it the class as `sink_type`, its `options`, and a `damage`. Every batch goes through files of the spool.

    `read_back` calls the sink's own `read_rows`: override it where another program can read the target.
    """

    sink_type: ClassVar[type[OwnSink[Any]]]

    def options(self) -> Mapping[str, Any]:
        """Return the options of a sink whose target is below `self.directory`."""
        return {}

    def make(self) -> OwnSink[Any]:
        spool = str(self.directory / "spool")
        return self.sink_type(name="own", pipeline=PIPELINE, spool=spool, inline_limit_bytes=0, **self.options())

    def read_back(self) -> Iterable[Row]:
        sink = self.make()
        try:
            if not sink.exists():
                return []
            with sink.transaction() as transaction:
                found = sink.read_rows(transaction, arrow_schema(self.schema))
                return [row for batch in found for row in batch.to_pylist()]
        finally:
            sink.close()

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class OwnSinkContract(SinkContract, IdentityContract, StagingLossContract, VerifyBesideDriverContract, CrashContract):
    """Subclass it as `Test…` with `rig_type`. `fault_parts` may name points of the sink's own module, too."""

    rig_type: ClassVar[type[OwnSinkRig]]
    fault_parts = ("own",)
    damages = tuple(damage for damage in DAMAGES if damage != "swapped")
    """Set `damages = DAMAGES` where the rig's `damage` can also exchange two values."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        SinkContract.pytest_generate_tests(self, metafunc)
        CrashContract.pytest_generate_tests(self, metafunc)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> SinkRig:
        """A directory of its own: the crash tests use `tmp_path` for files, too."""
        directory = tmp_path / "rig"
        directory.mkdir()
        return self.rig_type(directory)
