"""Rows that sinks leave out travel as messages of tasks, are summed up, and are no rows that rules of sources dropped."""

from penstock.core.model import AccountName, Attempt, BatchId, Generation, SinkName, SourceName, Staged, Totals, new_nonce
from penstock.core.unrouted import of_sources, unrouted, without_unrouted


def test_what_tasks_say_is_summed_up_by_sink() -> None:
    attempt = Attempt(generation=Generation(1), batch_id=BatchId(0), partition=0, task_attempt=0, nonce=new_nonce())
    staged = Staged(sink=SinkName("lake"), account=AccountName("eu"), name="a", attempt=attempt.token, totals=Totals(rows=5))
    told = [unrouted(SinkName(sink), attempt, rows=rows) for sink, rows in (("lake", 3), ("lake", 4), ("shop", 1))]
    pieces, dropped = without_unrouted([told[0], staged, *told[1:]])
    assert pieces == (staged,)
    assert dropped == {"sinks.lake": {"unrouted": 7}, "sinks.shop": {"unrouted": 1}}
    by_rule = {SourceName("lake"): {"in_range": 2}}
    assert of_sources({**dropped, **by_rule}) == by_rule
