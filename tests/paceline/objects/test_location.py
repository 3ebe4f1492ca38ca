"""URLs of places in object stores: which are taken, and why others are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.objects.location import is_url, parse, place_at, refusal


def test_a_location_is_used_as_a_path_is() -> None:
    place = parse("s3://bucket/runs/") / "job" / "step-4.g1"
    assert (str(place), place.name, str(place.parent), place.bucket_url) == (
        "s3://bucket/runs/job/step-4.g1",
        "step-4.g1",
        "s3://bucket/runs/job",
        "s3://bucket",
    )
    assert str(parse("gs://bucket")) == "gs://bucket"
    assert str(parse("gs://bucket") / "job") == "gs://bucket/job"


def test_a_file_url_is_the_folder_that_it_names() -> None:
    assert place_at("file:///data/runs") == place_at("/data/runs") == Path("/data/runs")
    assert is_url("file:///data")
    assert not is_url("/data")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("runs", "is not an absolute path, nor one of s3://BUCKET/PREFIX"),
        ("http://host/runs", "has the unknown scheme http://; use one of s3://"),
        ("S3://bucket/runs", "has the unknown scheme S3://"),
        ("s3://", "names no bucket"),
        ("s3:///runs", "names no bucket"),
        ("s3://b/runs", "names the bucket 'b': a bucket has 2 to 254 letters, digits, '.', '_' and '-', first a letter or digit"),
        ("s3://my bucket/runs", "names the bucket 'my bucket': a bucket has 2 to 254 letters"),
        ("s3://key:secret@bucket/runs", "has credentials in it"),
        ("s3://bucket/a//b", "has an empty part"),
        ("s3://bucket/../other", "has an empty part, . or .."),
        ("s3://bucket/a?versionId=1", "has one of [?] # %"),
        ("file://runs", "has no absolute path"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(text: str, why: str) -> None:
    assert re.match(why, refusal(text) or "")


@pytest.mark.parametrize("text", ["/runs", "s3://bucket", "s3://bucket/runs/", "gs://a-b.c/runs", "az://container/a_b/c=d", "file:///runs"])
def test_what_can_be_used_is_taken(text: str) -> None:
    assert refusal(text) is None
