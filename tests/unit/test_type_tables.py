"""The page about types is what the code does."""

from docs import type_tables


def test_the_page_is_current():
    assert type_tables.PAGE.read_text(encoding="utf-8") == type_tables.page(), "run `make docs`"
