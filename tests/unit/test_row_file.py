"""Files whose footer is damaged are told as such; the library would end the process."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EVERY_BYTE = """
import io, sys
import pyarrow as pa
from penstock.sink.parquet.row_file import opened_for_hashing
whole, refused = open(sys.argv[1], "rb").read(), 0
for place in range(len(whole)):
    damaged = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
    try:
        for _ in opened_for_hashing(io.BytesIO(damaged)).iter_batches(use_threads=False):
            pass
    except (pa.ArrowException, OSError):
        refused += 1
print(refused)
"""


def test_no_damaged_byte_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "a"], "number": [1, 2, 3]}), file, store_schema=False)
    command = [sys.executable, "-c", EVERY_BYTE, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > file.stat().st_size / 4
