"""An act on a checkpoint that takes long to plan, as a rebuild does by Spark, and a run that begins meanwhile."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.preflight_world import World

from penstock.checkpoint.act import Act, Draft, newest_entries
from penstock.errors import Fenced
from penstock.run.assembly import assemble
from penstock.run.checkpoint_acts import perform_act
from penstock.run.operations import coordinator_of
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import Runtime, opened_by_this_process, prepare


def test_an_act_is_not_carried_out_behind_a_run_that_is_newer(tmp_path: Path) -> None:
    plan = Pipeline.from_file(World(tmp_path, "files", settled=True).file).plan

    def shown(runtime: Runtime) -> Act:
        files = runtime.checkpoint.files
        draft, newest = Draft(files), newest_entries(files)
        draft.write("made", b"by Spark", reason="")
        return Act(verb="rebuild", request={}, location="", sentence="", steps=draft.steps(), newest=newest, newest_after=newest)

    def overtaken(runtime: Runtime) -> Act:
        with closing(assemble(plan)) as other:
            prepare(other, schema=None)
            coordinator_of(other).open(opened_by_this_process(other))
        return shown(runtime)

    with pytest.raises(Fenced):
        perform_act(plan, "rebuild", {}, shown, doing=overtaken, yes=True)
    assert not [path.name for path in (tmp_path / "state").rglob("*") if path.name in {"made", "penstock-acts"}]
    assert perform_act(plan, "rebuild", {}, shown, doing=shown, yes=True).done
    assert [path.name for path in (tmp_path / "state").rglob("made")]
