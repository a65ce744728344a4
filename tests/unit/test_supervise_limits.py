"""What a supervisor measures a driver by: the signs of its batches, and the memory of its session."""

import os
from pathlib import Path

import pytest

from penstock.supervise.heartbeat import Heartbeat, Signs
from penstock.supervise.memory import resident_bytes
from penstock.supervise.restarts import Ended


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(
    ("heard", "batch_s"),
    [
        pytest.param([b"...", b"...", b"..."], 0, id="no batch"),
        pytest.param([b"000", b"000", b"000"], 30, id="one batch"),
        pytest.param([b"000", b"111", b"000"], 10, id="three batches"),
        pytest.param([b"000", b"0.0", b"000"], 20, id="two batches that look alike"),
        pytest.param([b"000", b"00.", b"..."], 0, id="a batch that has ended"),
        pytest.param([b"www", b"w..", b"..1"], 10, id="a batch after the driver's turn came"),
    ],
)
def test_how_long_a_batch_takes(heard, batch_s):
    clock = Clock()
    signs = Signs(clock)
    for each in heard:
        signs.heard(each)
        clock.now_s += 10
    assert signs.batch_s() == batch_s


def test_short_batches_of_which_every_second_one_gives_a_sign_are_not_one_long_batch():
    clock = Clock()
    signs = Signs(clock)
    reading, writing = os.pipe()
    for batch_id in range(0, 20, 2):
        Heartbeat(writing).beat(batch_id=batch_id)
        signs.heard(os.read(reading, 9))
        assert signs.batch_s() == 0
        clock.now_s += 0.2
    os.close(reading)
    os.close(writing)


def test_the_memory_of_a_session_is_that_of_all_its_processes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096}.__getitem__)
    for number, session, pages in ((7, 7, 100), (8, 7, 20), (9, 9, 3)):
        (tmp_path / str(number)).mkdir()
        fields = ["S", "1", str(number), str(session), *["0"] * 17, str(pages), "0"]
        (tmp_path / str(number) / "stat").write_text(f"{number} (a (strange) name) {' '.join(fields)}")
    (tmp_path / "10").mkdir()
    assert resident_bytes(7, proc=tmp_path) == 120 * 4096
    assert resident_bytes(11, proc=tmp_path) == 0


def test_a_driver_that_was_killed_says_why():
    assert Ended(exit_code=None, ran_s=1, fault="took too much memory").text == "took too much memory and was killed"
