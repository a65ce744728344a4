"""Calls, words and names that do not belong in this repository."""

import ast
import re

import pytest

from tests.architecture import rules
from tests.architecture.reading import CODE_FOLDERS, PACKAGE, ROOT, markdown_files, name_of, python_files, tree_of

BREAKS = [
    (rules.calling("print"), "print(1)"),
    (rules.calling("time.sleep"), "from time import sleep as nap\nnap(1)"),
    (rules.calling("time.sleep"), "import time\ntime.sleep(1)"),
    (rules.renaming, "import os\nos.replace(a, b)"),
    (rules.renaming, "from os import rename\nrename(a, b)"),
    (rules.renaming, "path.with_suffix('.x').replace(target)"),
    (rules.importing("pickle"), "import pickle"),
    (rules.importing("pickle"), "from pickle import loads"),
    (rules.swallowing, "try:\n    f()\nexcept:\n    g()"),
    (rules.swallowing, "try:\n    f()\nexcept Exception:\n    pass"),
    (rules.swallowing, "try:\n    f()\nexcept (ValueError, BaseException):\n    'never mind'"),
    (rules.swallowing, "import contextlib\nwith contextlib.suppress(Exception):\n    f()"),
    (rules.unseeded, "import random\nrandom.shuffle(x)"),
    (rules.unseeded, "from random import choice\nchoice(x)"),
    (rules.unseeded, "import random\nrandom.Random()"),
    (rules.unseeded, "import numpy as np\nnp.random.default_rng()"),
    (rules.unseeded, "import numpy as np\nnp.random.rand(3)"),
    (rules.calling(*rules.CLOCK), "from datetime import datetime\ndatetime.now(tz)"),
    (rules.collecting_by_the_clock, "import time\n@parametrize('at', [time.time() + 1])\ndef test(at): ..."),
    (rules.assuring_with_sets, "frame.distinct().count()"),
]
KEEPS = [
    (rules.renaming, "text.replace('a', 'b')"),
    (rules.renaming, "import dataclasses\ndataclasses.replace(value, field=1)"),
    (rules.swallowing, "try:\n    f()\nexcept ValueError:\n    pass"),
    (rules.swallowing, "try:\n    f()\nexcept BaseException as error:\n    keep(error)"),
    (rules.unseeded, "import random\nseed = random.SystemRandom().randrange(9)\nrandom.Random(seed).random()"),
    (rules.unseeded, "import random\nSEED = random.randrange(9)"),
    (rules.unseeded, "from random import Random\ndef f(random: Random):\n    return random.choice('ab')"),
    (rules.calling(*rules.CLOCK), "import time\ntime.monotonic()"),
    (rules.collecting_by_the_clock, "import time\n@fixture\ndef now():\n    return time.time()"),
]


@pytest.mark.parametrize(("check", "code"), BREAKS)
def test_a_rule_sees_what_breaks_it(check: rules.Check, code: str) -> None:
    assert list(check(ast.parse(code)))


@pytest.mark.parametrize(("check", "code"), KEEPS)
def test_a_rule_lets_pass_what_keeps_it(check: rules.Check, code: str) -> None:
    assert not list(check(ast.parse(code)))


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: f"{rule.name}, {rule.where[0]}")
def test_no_code_breaks_the_rule(rule: rules.Rule) -> None:
    files = [path for path in python_files() if rule.holds_for(name_of(path))]
    broken = [f"{name_of(path)}:{line} {rule.name}" for path in files for line in rule.check(tree_of(path))]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: f"{rule.name}, {rule.where[0]}")
def test_every_exception_to_a_rule_is_still_needed(rule: rules.Rule) -> None:
    excused = {prefix: [path for path in python_files() if name_of(path).startswith(prefix)] for prefix in rule.unless}
    unneeded = [prefix for prefix, paths in excused.items() if not any(list(rule.check(tree_of(path))) for path in paths)]
    assert not unneeded, f"nothing in {unneeded} {rule.name} any more"


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not [name_of(path) for path in python_files() if path.stem in vague or path.parent.name in vague]


# Split in two, so that this file does not hold what it looks for.
WORDS = {
    "epo" + "ch": "a newer opening is a generation; Spark's is a batch",
    "exactly-" + "once guaranteed": "say what is guaranteed and by what",
}
PLACES = re.compile(r"(?<![\w.$}/~-])/(?:root|home|opt|work|Users)/[\w-]")


def texts() -> list[tuple[str, str]]:
    paths = [
        *python_files("src", "demo", "bench"),
        *markdown_files(),
        *ROOT.glob("demo/*.yaml"),
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
    ]
    paths += [path for path in PACKAGE.rglob("*") if path.suffix in {".yaml", ".json", ".sql", ".md"}]
    return [(name_of(path), path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number} {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("word", WORDS)
def test_banned_words(word: str) -> None:
    found = [line for line in lines_with(re.compile(rf"\b{word}s?\b", re.IGNORECASE)) if not line.startswith("docs/GLOSSARY.md")]
    assert not found, f"{WORDS[word]}:\n" + "\n".join(found)


def test_no_place_of_one_machine_is_named() -> None:
    found = lines_with(PLACES)
    assert not found, "\n".join(found)


def test_every_python_file_is_in_a_folder_that_is_looked_at() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py")}
    assert {folder for folder in folders if not folder.startswith(".")} <= set(CODE_FOLDERS)
