"""The console sink: what people see, and that it claims no more than it does."""

import io
import random

import pytest
from tests.unit.table_target import spark_schema

from penstock.core import faults
from penstock.core.model import SinkName
from penstock.errors import Retryable
from penstock.sink.console import ConsoleSink
from penstock.testing.conformance import Bench, SinkRig, make_rows

LONG = random.Random(1).randbytes(150_000).hex()


class ConsoleRig(SinkRig):
    def __init__(self, directory, **options):
        super().__init__(directory)
        self.options, self.stream = options, io.StringIO()

    def make(self):
        return ConsoleSink(name=SinkName("screen"), spool=str(self.directory / "spool"), stream=self.stream, **self.options)

    def read_back(self):
        raise NotImplementedError

    @property
    def printed(self):
        return self.stream.getvalue()


@pytest.fixture
def bench(tmp_path):
    bench = Bench(ConsoleRig(tmp_path))
    yield bench
    faults.arm("")
    bench.close()


def shape(bench, **columns):
    bench.rig.schema = spark_schema(**columns)
    return bench.sink()


def test_it_claims_no_more_than_it_does(bench):
    sink = bench.sink()
    assert not sink.exactly_once
    assert "again after a restart" in sink.describe()["publish"]
    assert [finding.message for finding in sink.check()] == ["prints rows, at least once"]
    report = bench.verify(sink)
    assert report.ok
    assert report.accounts == {}


def test_it_prints_the_first_rows_and_counts_all(bench):
    bench.rig.options = {"rows": 3}
    sink = shape(bench, id="long", name="string")
    rows = [{"id": at, "name": f"name {at}"} for at in range(100)]
    bench.deliver(sink, rows[:60], rows[60:], batch_id=7)
    lines = bench.rig.printed.splitlines()
    assert lines[0].strip() == "conformance · screen · batch 7 · 100 rows"
    assert [line.split("│")[1:3] for line in lines if "│" in line] == [[f" {at}  ", f" name {at} "] for at in range(3)]
    assert "id" in bench.rig.printed


def test_only_what_is_printed_is_staged(bench):
    sink = shape(bench, id="long")
    rows = [{"id": at} for at in range(100_000)]
    [piece] = bench.stage(sink, rows, batch_id=0)
    assert piece.totals.rows == 100_000
    assert len(piece.inline) < 5000


def test_no_rows_wanted_is_a_line(bench):
    bench.rig.options = {"rows": 0}
    sink = shape(bench, id="long")
    bench.deliver(sink, [{"id": 1}, {"id": 2}], batch_id=3)
    assert bench.rig.printed.strip() == "conformance · screen · batch 3 · 2 rows"


def test_an_empty_batch_prints_nothing(bench):
    bench.deliver(bench.sink(), batch_id=0)
    assert bench.rig.printed == ""


def test_long_and_hostile_values_cannot_hurt_a_terminal(bench):
    bench.rig.options = {"truncate": 12}
    sink = shape(bench, text="string")
    texts = ["\x1b[31mred\x1b[0m", "[bold]markup[/bold]", "two\nlines", "a" * 50, "bell\a", None, "\u202eabc"]
    bench.deliver(sink, [{"text": text} for text in texts], batch_id=0)
    printed = bench.rig.printed
    assert not set("\x1b\a\u202e") & set(printed)
    assert "aaaaaaaaaaa…" in printed
    assert "two\\nlines" in printed
    assert "[bold]marku…" in printed
    assert "NULL" in printed


def test_every_type_can_be_printed(bench):
    bench.rig.options = {"truncate": 0}
    bench.deliver(bench.sink(), make_rows(range(30)), batch_id=0)
    assert "9223372036854775807" in bench.rig.printed
    assert "nan" in bench.rig.printed


def test_a_repetition_prints_nothing_in_the_same_process(bench):
    sink = shape(bench, id="long")
    shown = bench.deliver(sink, [{"id": 1}], batch_id=0)
    before = bench.rig.printed
    assert sink.publish(shown.publication).already
    assert bench.rig.printed == before


def test_large_rows_are_printed_again_after_a_restart(bench):
    """A start publishes the newest batch again, and nothing remembers that it was printed."""
    sink = shape(bench, name="string")
    first = bench.deliver(sink, [{"name": LONG}], batch_id=0)
    assert first.publication.staged[0].inline is None
    second = bench.deliver(sink, [{"name": LONG}], batch_id=1)
    again = bench.sink()
    assert not again.publish(second.publication).already
    assert bench.rig.printed.count("batch 1") == 2


def test_large_rows_go_through_the_spool_and_leave_no_more_than_the_newest(bench):
    sink = shape(bench, text="string")
    for number in range(3):
        shown = bench.deliver(sink, [{"text": LONG}], batch_id=number)
        assert LONG[:20] in bench.rig.printed
        assert [path.name for path in bench.rig.directory.glob("spool/*/*/*.arrow")] == [shown.publication.staged[0].name]


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_closed_output_is_told(bench, kind):
    sink = shape(bench, id="long")
    faults.arm(f"console.print={kind}")
    rows = [{"id": 1}]
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
    with pytest.raises(Retryable, match="cannot print"):
        sink.publish(shown.publication)
    assert not sink.publish(shown.publication).already
    assert bench.rig.printed.count("batch 0") == (2 if kind == "lost" else 1)


def test_staging_that_is_dead_is_swept(bench):
    sink = shape(bench, text="string")
    bench.stage(sink, [{"text": LONG}], batch_id=0)
    assert len(sink.sweep(bench.cut(generation=2), dry_run=True)) == 1
    assert len(sink.sweep(bench.cut(generation=2), dry_run=False)) == 1
    assert list(sink.sweep(bench.cut(generation=2), dry_run=False)) == []
    sink.close()
