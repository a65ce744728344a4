"""Metadata of Iceberg tables in a store, by the client of the data files."""

from pathlib import Path

import pytest
from tests.conformance.iceberg_rig import StoreRig

from penstock.sink.iceberg.store_io import StoreFileIO


def test_what_was_not_written_whole_is_not_put(tmp_path: Path) -> None:
    place = StoreRig(tmp_path).place()
    output = StoreFileIO(dict(place.io())).new_output(f"{place.location}/metadata/one.json")
    stream = output.create()
    stream.write(b"{")
    with pytest.raises(ZeroDivisionError), stream:
        raise ZeroDivisionError
    assert not output.exists()
    with output.create() as stream:
        stream.write(b"{}")
    assert (len(output), output.to_input_file().open().read()) == (2, b"{}")
    with pytest.raises(FileExistsError):
        output.create()


def test_nothing_outside_of_the_table_is_touched(tmp_path: Path) -> None:
    files = StoreFileIO(dict(StoreRig(tmp_path).place().io()))
    for act in (files.new_input, files.new_output, files.delete):
        with pytest.raises(ValueError, match="is outside of the table"):
            act("s3://elsewhere/metadata/one.json")


def test_metadata_that_is_gone(tmp_path: Path) -> None:
    place = StoreRig(tmp_path).place()
    gone = StoreFileIO(dict(place.io())).new_input(f"{place.location}/metadata/none.json")
    assert not gone.exists()
    for look in (gone.open, gone.__len__):
        with pytest.raises(FileNotFoundError):
            look()
