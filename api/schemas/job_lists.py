"""Lists of jobs: a page with its place in the list, what can be filtered by, and named views."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Page, Schema, Timestamp
from paceline.api.schemas.jobs import JobSummary
from paceline.training.schema.parts import Text
from paceline.training.schema.spelling import SpellingRule

#: A view's name is one part of its address, so what browsers and proxies split, resolve or rewrite there is refused.
VIEW_NAME = SpellingRule(
    r"^(?!\.+$)[^\x00-\x1f\x7f-\x9f/\\]{1,64}$",
    "1 to 64 characters; no '/', no '\\', no control characters, not only dots",
    "Failed this week",
)


class JobPage(Page[JobSummary]):
    total: int | None = Field(None, description="with `count=true`: how many jobs match on all pages")
    first: int | None = Field(
        None, description="with `count=true`: the number in the list of the first job of this page, from 1; null: the page is empty"
    )


class JobFacets(Schema):
    """The values that jobs have, by which a list can be filtered."""

    projects: list[str]
    users: list[str]
    models: list[str]
    labels: dict[str, list[str]] = Field(description="by the label's name, its values")


class SavedView(Schema):
    """A named view of the list of jobs. Everybody sees it. Its owner and admins change it."""

    name: str
    query: str = Field(description="filters, order and columns, as the page's address has them: `status=failed&project=vision`")
    created_by: str
    created_by_id: str | None
    created_at: Timestamp


class SaveView(Schema):
    query: Text = Field(max_length=2000)
