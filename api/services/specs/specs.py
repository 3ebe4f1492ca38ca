"""A job spec from a document that did not come as a request body."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from paceline.api.field_errors import invalid_body
from paceline.training.spec.job import JobSpec


def parse_spec(document: dict[str, Any]) -> JobSpec:
    """A `JobSpec`, or a problem that points at each wrong field."""
    try:
        return JobSpec.model_validate(document)
    except ValidationError as error:
        errors = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise invalid_body(errors, document, JobSpec, code="invalid_spec") from None
