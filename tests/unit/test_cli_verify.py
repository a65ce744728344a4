"""What `penstock verify` prints: for programs in the shape of the interface, for people with what it can know."""

import json
from dataclasses import replace

from tests.unit.test_cli_text import LAKE, printed

from penstock.cli.output import json_line
from penstock.cli.verify import _text as verify_text
from penstock.cli.verify import fields_of
from penstock.commit.verification import NOT_COMPARED
from penstock.core.model import AccountName, AccountReport, BatchId, Position, Problem, SinkName, SinkReport, Totals
from penstock.run.operations import Removed, Verification


def report(*, found_rows: int, problems: tuple[Problem, ...] = ()) -> SinkReport:
    expected = Totals(rows=10, digest=2**64 - 1)
    found = Totals(rows=found_rows, digest=expected.digest if found_rows == 10 else 5)
    good = Totals(rows=4, digest=3)
    return SinkReport(
        accounts={
            AccountName("EWR"): AccountReport(expected=expected, found=found),
            AccountName("JFK"): AccountReport(expected=good, found=good),
        },
        problems=problems,
        as_of=Position(41),
    )


def test_verify_in_the_shape_of_the_interface() -> None:
    lost = Problem(message="The file is missing.", account=AccountName("EWR"), file="month=1/x.parquet", batch_id=BatchId(3))
    removed = Removed(
        totals={LAKE: {AccountName("EWR"): Totals(rows=4, files=2)}}, position=Position(30), accepted_at_ms=1_767_225_600_000
    )
    lake, at = report(found_rows=9, problems=(lost,)), {Position(41): BatchId(7)}
    found = Verification(sinks={LAKE: lake}, batches=at, unsettled=BatchId(8), removed=removed)
    assert json.loads(json_line(fields_of(found))) == {
        "ok": False,
        "sinks": {
            "lake": {
                "ok": False,
                "rows_expected": 14,
                "rows_found": 13,
                "rows_removed": 4,
                "digest_expected": "0000000000000002",
                "digest_found": "0000000000000008",
                "accounts": {
                    "EWR": {
                        "ok": False,
                        "rows_expected": 10,
                        "rows_found": 9,
                        "rows_removed": 4,
                        "digest_expected": "ffffffffffffffff",
                        "digest_found": "0000000000000005",
                    },
                    "JFK": {
                        "ok": True,
                        "rows_expected": 4,
                        "rows_found": 4,
                        "rows_removed": 0,
                        "digest_expected": "0000000000000003",
                        "digest_found": "0000000000000003",
                    },
                },
                "problems": [{"message": "The file is missing.", "account": "EWR", "file": "month=1/x.parquet", "batch_id": 3}],
                "unnamed": {},
                "unread": False,
                "as_of": {"position": 41, "batch_id": 7},
            }
        },
        "since": None,
        "unsettled": 8,
        "replaying": None,
        "adopted_at": None,
        "removed_at": 30,
        "digest": "xxhash64+nulls",
        "unseen": None,
        "rows": None,
        "other_ledger": None,
        "errors": {},
    }
    text = printed(verify_text(found))
    assert "lake: The file is missing. (account EWR file month=1/x.parquet batch 3)" in text
    assert any(line.startswith("lake: 4 rows of 2 files were removed on purpose and are not expected") for line in text)
    assert text[-2] == "The sinks do not hold what the ledger says."
    assert text[-1].startswith("Put back what is missing")


def test_an_account_with_a_problem_is_different_though_its_sums_agree() -> None:
    """As of rows that moved from one of its files to another."""
    moved = Problem(message="A file was changed.", account=AccountName("EWR"), file="x.parquet", batch_id=BatchId(3))
    found = Verification(sinks={LAKE: report(found_rows=10, problems=(moved,))})
    accounts = json.loads(json_line(fields_of(found)))["sinks"]["lake"]["accounts"]
    assert {name: account["ok"] for name, account in accounts.items()} == {"EWR": False, "JFK": True}
    text = printed(verify_text(found))
    assert [line.split()[1] for line in text if "DIFFERENT" in line] == ["EWR"]


def test_verify_says_as_of_what_it_compared_and_which_batch_it_left_out() -> None:
    found = Verification(sinks={LAKE: report(found_rows=10)}, batches={Position(41): BatchId(7)}, unsettled=BatchId(8))
    text = printed(verify_text(found))
    assert "lake: as of position 41 of the ledger (batch 7)." in text
    left_out = "Batch 8 is decided, was not published everywhere, and is left out: a running driver publishes it, else"
    assert " ".join(text).count(left_out) == 1
    assert text[-1] == "Every row of the ledger is in its place once, and nothing else is."


def test_verify_says_where_nobody_looked() -> None:
    lake = replace(report(found_rows=10), unnamed={AccountName("LGA"): Totals(rows=75)})
    found = Verification(sinks={LAKE: lake})
    fields = json.loads(json_line(fields_of(found)))
    assert (fields["ok"], fields["sinks"]["lake"]["unnamed"]) == (True, {"LGA": 75})
    text = printed(verify_text(found))
    assert "lake: 75 rows were decided for account LGA, which the pipeline file does not name. Nobody looked there." in text
    assert (
        " ".join(text).count("Every row of the ledger, but for accounts that the pipeline file does not name, is in its place")
        == 1
    )


def test_verify_says_that_it_left_out_a_replay() -> None:
    text = " ".join(printed(verify_text(Verification(sinks={LAKE: report(found_rows=10)}, replaying=Position(44)))))
    assert text.count("What was replayed at position 44 of the ledger was not published everywhere, and is left out") == 1


def test_verify_after_an_adoption_says_what_it_can_know() -> None:
    text = printed(verify_text(Verification(sinks={LAKE: report(found_rows=10)}, adopted_at=Position(30))))
    assert "in its place once" not in " ".join(text)
    assert text[-2:] == [
        "Every row that the ledger decided is in its place, and nothing else is.",
        "Each record is there once since the adoption at position 30; records that were delivered before it can be there twice.",
    ]


def test_verify_of_sinks_that_keep_nothing_claims_nothing() -> None:
    text = printed(verify_text(Verification(sinks={LAKE: SinkReport(accounts={}, problems=())})))
    assert not any("in its place" in line for line in text)
    assert any(line.startswith("Nothing of lake was compared") for line in text)


def test_verify_since_a_batch_says_what_it_left_out() -> None:
    found = Verification(sinks={LAKE: report(found_rows=10), SinkName("table"): NOT_COMPARED}, since=BatchId(6))
    text = " ".join(printed(verify_text(found)))
    assert "Every row decided after batch 6 is in its place once. What is older was not read." in text
    assert "Nothing of table was compared: only sinks of type parquet know which rows are newer" in text
    assert fields_of(found)["since"] == 6


def test_verify_of_a_good_result() -> None:
    text = printed(verify_text(Verification(sinks={LAKE: report(found_rows=10)})))
    assert text[-1] == "Every row of the ledger is in its place once, and nothing else is."
    assert not any("DIFFERENT" in line for line in text)


def test_verify_says_whose_rows_it_did_not_read() -> None:
    unread = replace(report(found_rows=10), unread=True)
    found = Verification(sinks={LAKE: unread})
    text = printed(verify_text(found))
    assert text[-1] == "Of lake only publications were compared, not rows: your SQL decides which are there."
    assert any("not read" in line for line in text)
    assert found.sinks[LAKE].unread


def test_verify_never_tells_to_delete_files_of_others_without_a_warning() -> None:
    """They may be all that a job delivered before it was taken over."""
    foreign = Problem(message="x.parquet is foreign: no batch decided its 99 rows.", account=AccountName("EWR"), file="x.parquet")
    text = " ".join(printed(verify_text(Verification(sinks={LAKE: report(found_rows=109, problems=(foreign,))}))))
    assert "take away what is foreign" not in text
    assert "Before you take it away, make sure that nobody needs it." in text
    assert "existing_rows: keep" in text
