import pytest

from penstock.spec.document import scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", 1000),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("True", True),
        ("~", None),
        ("yes", "yes"),
        ("'5'", "5"),
        ("2024-01-01", "2024-01-01"),
        ("!!int x", "x"),
        ("_", "_"),
        ("!a b", "b"),
        ("%YAML 1.1\n---\n[yes, 010]", [True, 8]),
    ],
)
def test_scalars_are_what_yaml_says(text: str, value: object) -> None:
    assert repr(scalar(text)) == repr(value)
