"""Sections that name a place in an object store: what they take, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.schema.checkpoint import CheckpointPolicy
from paceline.training.schema.data import Tokens
from paceline.training.schema.object_store import options_of


def test_options_are_those_that_the_client_takes_and_absent_without_any() -> None:
    policy = CheckpointPolicy.model_validate({"directory": "s3://runs/r", "options": {"endpoint": "http://minio:9000/", "region": "eu"}})
    assert options_of(policy.options) == {"endpoint": "http://minio:9000", "region": "eu"}
    assert options_of(None) == {}
    assert "options" not in CheckpointPolicy().model_dump()  # nodes of the version before do not know them
    assert "shared" not in CheckpointPolicy(directory="/runs").model_dump()
    assert CheckpointPolicy(directory="file:///runs", shared=True).model_dump()["shared"] is True
    assert "options" not in Tokens(path="/sets/text").model_dump()


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"directory": "runs"}, "checkpoint.directory=runs is not an absolute path"),
        ({"directory": "ftp://runs/r"}, "unknown scheme ftp://"),
        ({"directory": "s3://key:secret@runs/r"}, "has credentials in it"),
        ({"directory": "/runs", "options": {"region": "eu"}}, "is in no object store, so it has no options"),
        ({"options": {"region": "eu"}}, "is in no object store, so it has no options"),
        ({"directory": "s3://runs/r", "options": {"account": "a"}}, "a store of this kind has no option account"),
        ({"directory": "s3://runs/r", "options": {"secret_access_key": "x"}}, "secret_access_key"),
        ({"directory": "s3://runs/r", "options": {"endpoint": "minio:9000"}}, "should be http:// or https://"),
        ({"directory": "gs://runs/r", "options": {"endpoint": "http://gcs:4443"}}, "give an https:// one"),
        ({"directory": "az://runs/r", "options": {"endpoint": "http://azurite:10000"}}, "give an https:// one"),
        ({"shared": True}, "checkpoint.shared says that checkpoint.directory is one folder"),
        ({"directory": "s3://runs/r", "shared": True}, "that names no folder"),
        ({"directory": "s3://runs/r", "options": {"endpoint": "http://key:secret@minio"}}, "without credentials"),
    ],
)
def test_what_does_not_fit_is_refused(section: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        CheckpointPolicy.model_validate(section)


def test_a_token_set_may_be_in_a_store() -> None:
    assert Tokens(path="s3://sets/text").path == "s3://sets/text"
    with pytest.raises(ValidationError, match=r"data\.path=text is not an absolute path"):
        Tokens(path="text")
