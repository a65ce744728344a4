"""Seeded damages to real checkpoints of every version of Spark: `verify` finds each one that changes what Spark does.

PENSTOCK_SEED replays a run. What `verify` need not find stands in `_harmless` and `_hidden`, each with its reason.
"""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.seed import SEED
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint.act import ACTS
from penstock.checkpoint.acting import carry_out, undo
from penstock.checkpoint.hadoop_checksum import matches
from penstock.checkpoint.inspection import Next
from penstock.checkpoint.repair_plan import plan_repair
from penstock.checkpoint.state_content import tables_in
from penstock.checkpoint.verification import verify_files
from penstock.errors import Refused

DAMAGES_EACH = 50 if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else 8
Content = dict[str, bytes]


def delete(files: Content, place: str, draw: random.Random) -> str:
    del files[place]
    return f"delete {place}"


def truncate(files: Content, place: str, draw: random.Random) -> str:
    files[place] = files[place][: draw.randrange(len(files[place]))]
    return f"truncate {place} to {len(files[place])} bytes"


def flip(files: Content, place: str, draw: random.Random) -> str:
    data, at, bit = bytearray(files[place]), draw.randrange(len(files[place])), draw.randrange(8)
    data[at] ^= 1 << bit
    files[place] = bytes(data)
    return f"flip bit {bit} of byte {at} in {place}"


def copy_over(files: Content, place: str, draw: random.Random) -> str:
    other = draw.choice(_alike(files, place))
    files[place] = files[other]
    return f"copy {other} over {place}"


def swap(files: Content, place: str, draw: random.Random) -> str:
    other = draw.choice(_alike(files, place))
    files[place], files[other] = files[other], files[place]
    return f"swap {place} and {other}"


def duplicate(files: Content, place: str, draw: random.Random) -> str:
    folder, slash, name = place.rpartition("/")
    number = re.match(r"\d+", name)
    following = f"{folder}{slash}{int(number[0]) + 1}{name[number.end() :]}" if number else f"{place}-copy"
    target = f"{place}-copy" if following in files else following
    files[target] = files[place]
    return f"duplicate {place} as {target}"


DAMAGES: tuple[Callable[[Content, str, random.Random], str], ...] = (delete, truncate, flip, copy_over, swap, duplicate)


def _alike(files: Content, place: str) -> list[str]:
    """Return the other files of the same folder and ending, or the file itself if there is none."""

    def kind(name: str) -> tuple[str, str, bool]:
        folder, _, file = name.rpartition("/")
        return folder, file.rpartition(".")[2] if "." in file else "", file.startswith(".")

    return [name for name in sorted(files) if name != place and kind(name) == kind(place)] or [place]


def _unneeded(files: Content) -> dict[str, str]:
    """Return why Spark does not read a file at its next start, found here without the code under test."""
    why = {}
    newest = max(int(name[8:]) for name in files if re.fullmatch(r"offsets/\d+", name))
    for name in files:
        folder, _, file = name.rpartition("/")
        number = re.match(r"\.?(\d+)", file)
        if folder == "offsets" and number and int(number[1]) < newest - 1:
            why[name] = "Spark reads the two newest entries of the offset log"
        if folder == "commits" and number and int(number[1]) < newest:
            why[name] = "Spark reads the newest entry of the commit log"
        if folder.startswith("sources/") and number:
            compacts = [int(other[len(folder) + 1 : -8]) for other in files if re.fullmatch(rf"{folder}/\d+\.compact", other)]
            if int(number[1]) < max(compacts, default=0):
                why[name] = "a newer compacted entry repeats it"
        if file.endswith(".crc") and file.lstrip(".").removesuffix(".crc").endswith(".crc"):
            why[name] = "Spark does not look at the checksum of a checksum"
    for folder in {name.rpartition("/")[0] for name in files if re.search(r"\.(delta|zip|changelog)$", name)}:
        why.update(_unneeded_state(files, folder))
    return why


def _unneeded_state(files: Content, folder: str) -> dict[str, str]:
    versions = {name: int(match[2]) for name in files if (match := re.fullmatch(rf"{folder}/(\.?)(\d+)[._][^/]*", name))}
    newest = max(versions.values())
    snapshots = [name for name in versions if re.search(r"/\d+[^/]*\.(snapshot|zip)$", name)]
    base = max((versions[name] for name in snapshots), default=0)
    why = {}
    for name, version in versions.items():
        if version < base:
            why[name] = "a newer snapshot stands for it"
        elif version == base and re.search(r"\.(delta|changelog)(\.crc)*$", name):
            why[name] = "the snapshot of this version stands for it"
        elif version > newest:
            why[name] = "no batch made it"
    in_use: set[str] = set()
    for name in snapshots:
        if versions[name] == base and name.endswith(".zip"):
            in_use.update(tables_in(files[name]))
    for name in files:
        if name.startswith(f"{folder}/SSTs/") and name.rpartition("/")[2].removeprefix(".").removesuffix(".crc") not in in_use:
            why[name] = "no snapshot that Spark reads refers to this table"
    return why


def _harmless(before: Content, after: Content, unneeded: dict[str, str]) -> str | None:
    """Return why the damage changes nothing for Spark, None if it does change something."""
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    reasons = [_harmless_change(name, before, after, unneeded) for name in changed]
    return "; ".join(filter(None, reasons)) or "nothing changed" if all(reasons) else None


def _harmless_change(name: str, before: Content, after: Content, unneeded: dict[str, str]) -> str | None:
    if name in unneeded:
        return unneeded[name]
    if name.endswith(".crc"):
        return _harmless_checksum(name, before, after)
    if name.endswith("-copy") or (name.endswith(".sst") and name not in before):
        return "Spark passes over names that are not its own"
    if name not in before:
        return _harmless_addition(name, before)
    if name in after:
        return None
    return _harmless_removal(name, after)


def _harmless_checksum(name: str, before: Content, after: Content) -> str | None:
    """Hadoop's checksums are hidden files beside a file, those of Spark 4.1 and newer end with .crc, too."""
    folder, slash, file = name.rpartition("/")
    if name not in after or name not in before:
        return "a file without checksum is read as it is, and a checksum without file is not read"
    if not file.startswith("."):
        of_file = rb'"algorithm":"CRC32C","value":(-?\d+),"mainFileSize":(\d+),"timestampMs"'
        same = re.findall(of_file, after[name]) == re.findall(of_file, before[name])
        return "it says the same of the file" if same and after[name].endswith(b"}") else None
    checked = after.get(f"{folder}{slash}{file[1:].removesuffix('.crc')}", b"")
    return "it matches as before" if matches(checked, after[name]) else None


def _harmless_addition(name: str, before: Content) -> str | None:
    folder, _, file = name.rpartition("/")
    number = int(re.findall(r"^\d+", file)[0])
    if folder.startswith("sources/") and f"{folder}/{number}.compact" in before:
        return "the compacted entry of that number stands for it"
    if "_" in file:
        return "no commit names a version with this id"
    snapshots = [int(re.findall(r"(\d+)[^/]*$", one)[0]) for one in before if re.search(rf"^{folder}/\d+\.(snapshot|zip)$", one)]
    return "a newer snapshot stands for it" if snapshots and number < max(snapshots) else None


def _harmless_removal(name: str, after: Content) -> str | None:
    folder, _, file = name.rpartition("/")
    ending = file.rpartition(".")[2]
    if ending in {"snapshot", "zip"} and "_" not in file:
        behind = {"snapshot": "delta", "zip": "changelog"}[ending]
        for version in range(int(file.rpartition(".")[0]), 0, -1):
            if f"{folder}/{version}.{ending}" in after:
                return f"an older {ending} and each {behind} behind it stand for it"
            if f"{folder}/{version}.{behind}" not in after:
                return None
    if ending == "zip" and f"{name.removesuffix('.zip')}.changelog" in after:
        return "the changelog of this version names the snapshot and the changelogs before it"
    return "Spark writes it again" if file == "metadata" and folder.startswith("state/") else None


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_checkpoint_that_spark_wrote_has_no_findings(archive: Path) -> None:
    found = verify_files(MemoryFiles(content_of(archive)))
    assert (found.findings, found.outlook.next, found.ok) == ((), Next.NEW, True)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_every_damage_that_matters_is_found(archive: Path) -> None:
    whole = content_of(archive)
    unneeded = _unneeded(whole)
    draw = random.Random(f"{SEED} {archive.name}")
    missed = []
    for _ in range(DAMAGES_EACH):
        files = dict(whole)
        place = draw.choice(sorted(name for name in files if files[name]))
        what = draw.choice(DAMAGES)(files, place, draw)
        found = verify_files(MemoryFiles(files))
        if found.ok and found.outlook.next is Next.NEW and _harmless(whole, files, unneeded) is None:
            missed.append(what)
    assert not missed, f"PENSTOCK_SEED={SEED}"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_in_a_store_without_checksums_what_is_lost_or_cut_off_is_found(archive: Path) -> None:
    """What `verify` cannot see there: another whole state file, or a flipped bit in a text or table. Stores keep checksums."""
    whole = {name: data for name, data in content_of(archive).items() if not name.rpartition("/")[2].startswith(".")}
    unneeded = _unneeded(whole)
    draw = random.Random(f"{SEED} store {archive.name}")
    missed = []
    for _ in range(DAMAGES_EACH):
        files = dict(whole)
        what = draw.choice((delete, truncate))(files, draw.choice(sorted(files)), draw)
        found = verify_files(MemoryFiles(files))
        if found.ok and found.outlook.next is Next.NEW and _harmless(whole, files, unneeded) is None:
            missed.append(what)
    assert not missed, f"PENSTOCK_SEED={SEED}"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_after_a_repair_every_damage_is_undone_or_it_was_refused(archive: Path) -> None:
    """What the next start reads is what it was. An entry that it reads for no batch may be another, if no rewind finds it."""
    whole = content_of(archive)
    unneeded = _unneeded(whole)
    newest = max(int(name[8:]) for name in whole if re.fullmatch(r"offsets/\d+", name))
    filled = {f"offsets/{newest - 1}", f"commits/{newest - 1}"}
    draw = random.Random(f"{SEED} repair {archive.name}")
    wrong = []
    for _ in range(DAMAGES_EACH):
        damaged = dict(whole)
        what = draw.choice(DAMAGES)(damaged, draw.choice(sorted(name for name in damaged if damaged[name])), draw)
        files = MemoryFiles(dict(damaged))
        try:
            act = plan_repair(files)
        except Refused:
            continue
        if act.steps:
            carry_out(files, act)
        found = verify_files(files)
        other = {name for name in whole if not name.endswith(".crc") and files.content.get(name) != whole[name]}
        is_exact = other <= {*unneeded, *filled} and not (other & filled and f"commits/{newest - 1}" in files.content)
        if not (found.ok and found.outlook.next is Next.NEW and (is_exact or _harmless(whole, damaged, unneeded))):
            wrong.append((what, other))
        elif act.steps:
            undo(files, verb="repair", yes=True)
            assert {name: data for name, data in files.content.items() if not name.startswith(f"{ACTS}/")} == damaged
    assert not wrong, f"PENSTOCK_SEED={SEED}"
