"""Nothing grows past what can be read at one sitting. The sizes are printed at the end of the run."""

from tests.architecture import sizes


def test_no_file_is_too_long() -> None:
    assert [size for size in sizes.files() if size.lines > sizes.FILE_LIMIT] == []


def test_no_function_is_too_long() -> None:
    assert [size for size in sizes.all_functions() if size.lines > sizes.FUNCTION_LIMIT] == []


def test_the_median_function_is_short() -> None:
    lines = sorted(size.lines for size in sizes.all_functions("src"))
    assert lines[len(lines) // 2] < 10
