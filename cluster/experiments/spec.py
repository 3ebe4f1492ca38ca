"""What a user submits to compare configurations: one frozen `ExperimentSpec`, the same for YAML, REST, command line and Python. Pure pydantic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from paceline.monitoring.words import plural
from paceline.training.schema.amounts import TimeLimit
from paceline.training.schema.parts import Part, Real, Text, Whole, at_most, inconsistent
from paceline.training.schema.spelling import SpellingRule
from paceline.training.spec.job import LabelName, Name

#: Trials of one experiment, repeats included: more than anybody looks at, and few enough for one answer.
MOST_TRIALS = 5_000
MOST_VALUES = 1_000
MOST_AXES = 16
#: A dotted path into a job spec, as `paceline submit --set` takes it.
_PATH = SpellingRule(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", "the names of fields of a job spec, with dots between them", "optimizer.lr")
FieldPath = Annotated[Text, AfterValidator(_PATH.check), Field(max_length=200)]


class Range(Part):
    """`count` values from `first` to `last`, both included."""

    first: Real
    last: Real
    count: Annotated[Whole, Field(ge=2, le=MOST_VALUES)]
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def check_scale(self) -> Range:
        if self.scale == "log" and min(self.first, self.last) <= 0:
            raise inconsistent("a log scale needs values over 0, but it goes from {first} to {last}", first=self.first, last=self.last)
        return self


Values = Annotated[list[Any], Field(min_length=1, max_length=MOST_VALUES)]


def _form_of(axis: Any) -> str | None:
    """Tell which of the two forms an axis has, by the name that errors leave out of the place (`training.spec.shape`); None: neither."""
    if isinstance(axis, Range | dict):
        return "Range"
    return "list" if isinstance(axis, list | tuple) else None


Axis = Annotated[
    Annotated[Values, Tag("list")] | Annotated[Range, Tag("Range")],
    Discriminator(
        _form_of,
        custom_error_type="no_axis",
        custom_error_message="an axis is a list of values, such as [0.1, 0.01], or a range {first, last, count, scale}",
    ),
]


class Span(Part):
    """An interval that a search draws from, both ends included."""

    low: Real
    high: Real
    scale: Literal["linear", "log"] = "linear"
    whole: bool = Field(False, description="whole numbers only")

    @model_validator(mode="after")
    def check_order(self) -> Span:
        if not self.low < self.high:
            raise inconsistent("low={low} must be less than high={high}", low=self.low, high=self.high)
        if self.scale == "log" and self.low <= 0:
            raise inconsistent("a log scale needs low over 0, but low={low}", low=self.low)
        return self


class Search(Part):
    """Values that are drawn, in place of a grid of all of them."""

    kind: Literal["random", "tpe"] = Field(
        "random", description="tpe: Optuna's tree-structured Parzen estimator, which learns from trials that ended"
    )
    trials: Annotated[Whole, Field(ge=1, le=MOST_TRIALS)]
    seed: Annotated[Whole, Field(ge=0, lt=2**31)] = 0
    parameters: Annotated[dict[FieldPath, Values | Span], at_most(MOST_AXES)] = Field(min_length=1, max_length=MOST_AXES)


class Halving(Part):
    """Asynchronous successive halving (ASHA, Li et al. 2020): a trial pauses at each rung, and only the best 1/`factor` of a rung go on."""

    min_steps: Annotated[Whole, Field(ge=1)] = Field(description="steps of the first rung; each next one has `factor` times as many")
    factor: Annotated[Whole, Field(ge=2, le=16)] = 3


class Metric(Part):
    """The figure by which trials are compared, and whether less or more of it is better."""

    name: Annotated[Text, Field(min_length=1, max_length=200)] = "loss"
    goal: Literal["minimize", "maximize"] = "minimize"


class ExperimentBudget(Part):
    """Where the experiment stops to start trials; those that run are paused. None: no limit."""

    slot_hours: Annotated[Real, Field(gt=0)] | None = None
    wall_time: TimeLimit | None = None
    trials: Annotated[Whole, Field(ge=1, le=MOST_TRIALS)] | None = None


class ExperimentSpec(Part):
    version: Literal[1] = 1
    name: Name
    project: Name = "default"
    description: Text = Field("", max_length=2000)
    labels: Annotated[dict[LabelName, Annotated[Text, Field(max_length=253)]], at_most(64)] = Field(default_factory=dict, max_length=64)
    job: dict[str, Any] = Field(description="the job spec that all trials begin with; its name, project and labels are the experiment's")
    grid: Annotated[dict[FieldPath, Axis], at_most(MOST_AXES)] = Field(
        default_factory=dict, max_length=MOST_AXES, description="by path into the job spec: all combinations are tried"
    )
    zip: Annotated[list[dict[FieldPath, Values]], Field(max_length=MOST_AXES)] = Field(
        default_factory=list, description="columns that change together; each table is one more axis of the grid"
    )
    world_sizes: Annotated[list[Annotated[Whole, Field(ge=1)]], Field(max_length=64)] = Field(
        default_factory=list, description="numbers of ranks: an axis that sets resources.slots, and strategy single where it is 1"
    )
    scaling: Literal["strong", "weak"] = Field(
        "strong", description="along world_sizes; weak: training.global_batch_size is that of one rank, times the ranks"
    )
    baseline: bool = Field(
        False, description="add a single process for each combination of the other values: what efficiency and losses are measured against"
    )
    repeats: Annotated[Whole, Field(ge=1, le=100)] = 1
    vary_seed: bool = Field(False, description="repeat r trains with training.seed + r; else all repeats with the same seed")
    metric: Metric = Metric()
    search: Search | None = None
    halving: Halving | None = None
    at_once: Annotated[Whole, Field(ge=1)] | None = Field(
        None,
        description="trials that run side by side; default: as many as there is room for. 1 where they would disturb each other's speed",
    )
    budget: ExperimentBudget = ExperimentBudget()

    @model_validator(mode="after")
    def check_columns(self) -> ExperimentSpec:
        for table in self.zip:
            lengths = {path: len(values) for path, values in table.items()}
            if len(set(lengths.values())) > 1:
                told = ", ".join(f"{path} has {plural(length, 'value')}" for path, length in lengths.items())
                raise inconsistent("columns of one zip must be equally long: {told}", told=told)
        return self

    @model_validator(mode="after")
    def check_paths(self) -> ExperimentSpec:
        paths = self.paths
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise inconsistent("{path} is varied in two places; leave one", path=twice[0])
        if self.world_sizes and (taken := [path for path in paths if path.split(".")[0] == "resources"]):
            raise inconsistent("world_sizes sets resources, and so does {path}; leave one", path=taken[0])
        return self

    @property
    def paths(self) -> Sequence[str]:
        """The paths that vary, in their order: those of the grid, of each zip, of the search."""
        return [*self.grid, *(path for table in self.zip for path in table), *(self.search.parameters if self.search else ())]
