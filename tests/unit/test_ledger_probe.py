from hypothesis import given
from hypothesis import strategies as st

from penstock.ledger.log import last_present


@given(first=st.integers(1, 50), length=st.integers(0, 3000), start=st.integers(1, 3100))
def test_the_end_of_a_dense_run_is_found_from_anywhere_in_it(first: int, length: int, start: int) -> None:
    run = range(first, first + length)
    found = last_present(lambda number: str(number) if number in run else None, start)
    assert found == ((run[-1], str(run[-1])) if start in run else None)


def test_the_cost_grows_with_the_logarithm_of_the_distance() -> None:
    looks: list[int] = []

    def look(number: int) -> int | None:
        looks.append(number)
        return number if number <= 1_000_000 else None

    assert last_present(look, 1) == (1_000_000, 1_000_000)
    assert len(looks) <= 41
    looks.clear()
    assert last_present(look, 999_993) == (1_000_000, 1_000_000)
    assert len(looks) <= 8


def test_a_run_that_grows_meanwhile_is_followed_to_some_end_that_it_had() -> None:
    newest = 5

    def look(number: int) -> int | None:
        nonlocal newest
        newest += 1
        return number if number < newest else None

    found = last_present(look, 1)
    assert found is not None
    assert 5 <= found[0] < newest
