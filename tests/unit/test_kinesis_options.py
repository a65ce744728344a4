"""What a source `format: kinesis` may say in the pipeline file, and what becomes of it."""

from typing import Any

import pytest

from penstock.errors import Usage
from penstock.run.preflight.source_rules import _option
from penstock.source.kinesis.settings import settings_in
from penstock.source.kinesis.streams import data_source_options
from penstock.spec.kinesis_options import starting_position
from penstock.spec.source import Source


def source(**options: Any) -> Source:
    return Source(format="kinesis", options={"streamName": "orders", **options})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"streamName": "a b"}, "streamName should be the name of a stream"),
        ({"streamname": "x", "maxRecordsPerTrigger": 0}, "maxRecordsPerTrigger should be a whole number from 1 on, found '0'"),
        ({"maxBytesPerTrigger": "1MB"}, "maxBytesPerTrigger should be a whole number"),
        ({"maxOffsetsPerTrigger": 1}, "maxOffsetsPerTrigger is not an option of kinesis"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss should be true or false, found 'maybe'"),
        ({"aggregated": "join"}, "aggregated should be split or raw"),
        ({"startingPosition": "earliest"}, "startingPosition should be LATEST, TRIM_HORIZON"),
        ({"startingPosition": "AT_TIMESTAMP yesterday"}, "startingPosition should be LATEST, TRIM_HORIZON"),
        ({"startingPosition": '{"shardId-0": "earliest"}'}, "startingPosition should be"),
        ({"startingPosition": '{"shardId-0": 7}'}, "startingPosition should be"),
        ({"startingPosition": "{"}, "startingPosition should be"),
        ({"access_key_id": "a"}, "has one half of a key"),
        ({"region": ""}, "region should be a text that is not empty"),
    ],
)
def test_a_wrong_option_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises((Usage, ValueError), match=message):
        source(**given)


def test_a_source_needs_a_stream_and_has_its_own_columns() -> None:
    with pytest.raises((Usage, ValueError), match="has no streamName"):
        Source(format="kinesis")
    with pytest.raises((Usage, ValueError), match="schema does not go with format: kinesis"):
        Source(format="kinesis", schema="a INT", options={"streamName": "orders"})
    with pytest.raises((Usage, ValueError), match="on_gap is for format: kafka only"):
        Source(format="kinesis", on_gap="accept", options={"streamName": "orders"})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", "LATEST"),
        ("Trim_Horizon", "TRIM_HORIZON"),
        ("AT_TIMESTAMP 2026-01-31T00:00:00Z", "AT_TIMESTAMP 1769817600000"),
        ("at_timestamp 2026-01-31 01:00:00.5+01:00", "AT_TIMESTAMP 1769817600500"),
        ("AFTER_SEQUENCE_NUMBER 49", "AFTER_SEQUENCE_NUMBER 49"),
        (
            '{"shardId-0": "latest", "shardId-1": "AT_SEQUENCE_NUMBER 7"}',
            {"shardId-0": "LATEST", "shardId-1": "AT_SEQUENCE_NUMBER 7"},
        ),
        ("AT_SEQUENCE_NUMBER", None),
    ],
)
def test_a_starting_position(text: str, position: object) -> None:
    assert starting_position(text) == position


def test_settings_survive_the_way_through_spark() -> None:
    given = source(
        startingPosition='{"shardId-000000000000": "LATEST"}', maxRecordsPerTrigger=5, region="eu-west-1", aggregated="raw"
    )
    lowered = {key.lower(): value for key, value in data_source_options("web", given).items()}
    found = settings_in(lowered)
    assert (found.name, found.stream, found.begins) == ("web", "orders", {"shardId-000000000000": "LATEST"})
    assert (found.max_records, found.connection, found.is_split, found.place) == (5, {"region": "eu-west-1"}, False, "eu-west-1")
    assert settings_in(data_source_options("web", source())).begins == "LATEST"


@pytest.mark.parametrize(
    ("option", "verdict"),
    [
        ("streamName", "breaks"),
        ("region", "safe_with_action"),
        ("startingPosition", "safe"),
        ("maxRecordsPerTrigger", "safe"),
        ("failOnDataLoss", "safe"),
        ("secret_access_key", "safe"),
    ],
)
def test_what_a_change_means_under_a_checkpoint(option: str, verdict: str) -> None:
    assert _option("kinesis", option, "a", "b").verdict.value == verdict
