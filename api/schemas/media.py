"""Images, histograms and tables that ranks log with `paceline.log`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.monitoring.media import MediaKind


class MediaKey(Schema):
    """A key under which something is logged. Steps that a recovery takes back are left out until they are done again."""

    key: str
    kind: MediaKind
    steps: list[int] = Field(description="in order")
    ranks: list[int]
    bytes: int


class JobMedia(Schema):
    job_id: str
    keys: list[MediaKey] = Field(description="by name; a key of two kinds is there twice")


class MediaEntry(Schema):
    """One rank's object, without its content. `count`: images, values of a histogram, or rows."""

    id: str
    rank: int
    count: int
    bytes: int
    created_at: Timestamp


class MediaStep(Schema):
    step: int
    generation: int
    objects: list[MediaEntry] = Field(description="by rank")


class LoggedImage(Schema):
    """An image, whose file is at `media/{id}/images/{number}`, with the id of its object."""

    number: int
    width: int
    height: int
    caption: str
    format: Literal["png", "jpeg"]


class LoggedHistogram(Schema):
    """Counts of finite values by bin, with one edge more than counts; the statistics are of the finite values."""

    edges: list[float]
    counts: list[int]
    values: int = Field(description="finite or not")
    nans: int
    infs: int
    mean: float | None
    std: float | None
    least: float | None
    most: float | None


class LoggedTable(Schema):
    columns: list[str]
    rows: list[list[str | int | float | bool | None]] = Field(
        description='the first 10,000; NaN and the infinities are "NaN", "Infinity", "-Infinity"'
    )
    total_rows: int = Field(description="as many as were logged")


class MediaObject(Schema):
    """An object that one rank logged under a key at a step. `error`: why its content cannot be read."""

    id: str
    rank: int
    images: list[LoggedImage]
    histogram: LoggedHistogram | None
    table: LoggedTable | None
    error: str | None = None


class MediaAtStep(Schema):
    job_id: str
    key: str
    kind: MediaKind
    step: int
    generation: int
    ranks: list[int] = Field(description="all that logged it, asked for or not")
    objects: list[MediaObject]


class HistogramAtStep(Schema):
    step: int
    histogram: LoggedHistogram


class MediaHistograms(Schema):
    """A rank's histograms of one key over steps, evenly chosen where there are more than were asked for."""

    job_id: str
    key: str
    rank: int
    steps: int = Field(description="how many there are in the range")
    items: list[HistogramAtStep]
