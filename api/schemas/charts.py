"""Charts that the people of a project have put together, for the pages of its jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from paceline.api.schemas.common import Schema, Timestamp
from paceline.monitoring.points import MAX_NAME_CHARACTERS
from paceline.training.schema.parts import Text, inconsistent
from paceline.training.spec.job import Name

MOST_METRICS = 8
MOST_RUNS = 5
MetricName = Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
ChartName = Annotated[Text, Field(min_length=1, max_length=100, pattern=r"\S")]
RunId = Annotated[Text, Field(min_length=1, max_length=64)]


class ChartDefinition(Schema):
    """Metrics and runs that a chart draws. A metric with another unit than the first has its axis on the right."""

    metrics: tuple[MetricName, ...] = Field(min_length=1, max_length=MOST_METRICS)
    runs: tuple[RunId, ...] = Field((), max_length=MOST_RUNS, description="ids of jobs that are drawn beside the page's own")
    axis: Literal["step", "time", "samples", "tokens", "epoch"] | None = Field(
        None, description="what the x axis counts; null: as the page says"
    )
    scale: Literal["linear", "log"] | None = Field(None, description="of the left axis; null: as the page says")

    @model_validator(mode="after")
    def check_each_once(self) -> ChartDefinition:
        for what, names in (("metrics", self.metrics), ("runs", self.runs)):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise inconsistent("{what} has {twice} twice; name each once", what=what, twice=twice)
        return self


class NewChart(Schema):
    project: Name
    name: ChartName
    definition: ChartDefinition


class ChangedChart(Schema):
    name: ChartName
    definition: ChartDefinition


class ChartOrder(Schema):
    project: Name
    ids: tuple[RunId, ...] = Field(max_length=1000, description="of charts, in the wanted order; those that are left out stay behind them")


class Chart(Schema):
    """A chart that everybody sees in the jobs of its project, and every member may change."""

    id: str
    project: str
    name: str
    definition: ChartDefinition
    revision: int = Field(description="for If-Match: a change of an older one is refused")
    created_by: str
    updated_by: str
    created_at: Timestamp
    updated_at: Timestamp
