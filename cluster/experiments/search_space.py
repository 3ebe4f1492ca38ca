"""The dimensions of a search: listed values, or an interval. Optuna draws a number along each, its *place*. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import ModuleType
from typing import Any, Protocol

from paceline.cluster.experiments.spec import Search, Span

Values = Mapping[str, Any]


class Dimension(Protocol):
    @property
    def size(self) -> float:
        """How many different values there are."""

    def distribution(self, optuna: ModuleType) -> Any: ...

    def value_at(self, place: Any) -> Any: ...

    def place_of(self, value: Any) -> float | None:
        """Return where a value is; None: it is not of this dimension."""

    def in_order(self) -> Iterable[Any]:
        """Return all values of a dimension that is finite."""


@dataclass(frozen=True)
class ListedValues:
    """Listed values. They are drawn by their index: Optuna takes no lists or mappings."""

    values: Sequence[Any]

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key(value): place for place, value in reversed(list(enumerate(self.values)))}

    @property
    def size(self) -> float:
        return len(self._places)

    def distribution(self, optuna: ModuleType) -> Any:
        return optuna.distributions.CategoricalDistribution(range(len(self.values)))

    def value_at(self, place: Any) -> Any:
        return self.values[place]

    def place_of(self, value: Any) -> float | None:
        return self._places.get(key(value))

    def in_order(self) -> Iterable[Any]:
        return self.values


@dataclass(frozen=True)
class NumberRange:
    """Numbers from `span.low` to `span.high`."""

    span: Span

    @property
    def size(self) -> float:
        return len(self.in_order()) if self.span.whole else math.inf

    def distribution(self, optuna: ModuleType) -> Any:
        kinds, log = optuna.distributions, self.span.scale == "log"
        if self.span.whole:
            return kinds.IntDistribution(self.in_order()[0], self.in_order()[-1], log=log)
        return kinds.FloatDistribution(self.span.low, self.span.high, log=log)

    def value_at(self, place: Any) -> Any:
        return place

    def place_of(self, value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.span.low <= value <= self.span.high:
            return None
        return int(value) if self.span.whole else float(value)

    def in_order(self) -> range:
        return range(math.ceil(self.span.low), math.floor(self.span.high) + 1)


@dataclass(frozen=True)
class SearchSpace:
    dimensions: Mapping[str, Dimension]  # by path

    @classmethod
    def of(cls, search: Search) -> SearchSpace:
        return cls({path: NumberRange(axis) if isinstance(axis, Span) else ListedValues(axis) for path, axis in search.parameters.items()})

    @property
    def size(self) -> float:
        return math.prod(dimension.size for dimension in self.dimensions.values())

    def distributions(self, optuna: ModuleType) -> dict[str, Any]:
        return {path: dimension.distribution(optuna) for path, dimension in self.dimensions.items()}

    def values_at(self, places: Mapping[str, Any]) -> Values:
        return {path: dimension.value_at(places[path]) for path, dimension in self.dimensions.items()}

    def places_of(self, values: Values) -> dict[str, float] | None:
        """Return where values are along each dimension; None: they are of another space."""
        places = {path: dimension.place_of(values.get(path)) for path, dimension in self.dimensions.items()}
        known = {path: place for path, place in places.items() if place is not None}
        return known if len(known) == len(places) else None

    def in_order(self) -> Iterator[Values]:
        """Yield every combination of a space that is finite."""
        for values in product(*(dimension.in_order() for dimension in self.dimensions.values())):
            yield dict(zip(self.dimensions, values, strict=True))

    def key(self, values: Values) -> str:
        """Return a text that is the same for equal values of the search's own paths."""
        return key({path: values.get(path) for path in self.dimensions})


def key(value: Any) -> str:
    """Return a text that is the same for equal values, where 1 and 1.0 are equal, and 1 and true are not."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)
