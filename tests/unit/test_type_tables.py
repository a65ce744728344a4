"""The pages about types are what the code does."""

import pytest
from docs import type_tables


@pytest.mark.parametrize("page", type_tables.PAGES, ids=lambda page: page.name)
def test_the_page_is_current(page):
    assert page.path.read_text(encoding="utf-8") == page.text(), "run `make docs`"
