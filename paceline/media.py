"""What is logged beside numbers: `Histogram` and `Table`, and what they have in common with `Image`. Converted in the line of the caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from paceline.monitoring.media import (
    MAX_BINS,
    MAX_CELL_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROWS,
    Cell,
    MediaDocument,
    MediaKind,
    StoredHistogram,
    StoredTable,
    pack,
)
from paceline.monitoring.sinks import on_the_wire
from paceline.monitoring.words import plural


class Media(Protocol):
    """A value of `paceline.log` that is no number."""

    kind: MediaKind

    @property
    def count(self) -> int:
        """Images, values or rows."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why it is too large to be kept."""
        ...

    def content(self) -> bytes:
        """Return the content of its artifact; takes a while."""
        ...

    def words(self) -> str:
        """Return it in words, as it is printed outside a job."""
        ...


def array_of(value: Any, what: str) -> Any:
    """Return a tensor, an array or a list of numbers as a numpy array. Raises TypeError for anything else."""
    import numpy

    if hasattr(value, "detach"):  # a tensor: bfloat16 has no numpy type, and a half's range is too small for sums
        value = value.detach()
        value = value.to_dense() if getattr(value, "is_sparse", False) else value
        value = (value.float() if value.is_floating_point() else value).cpu().numpy()
    try:
        array = numpy.asarray(value)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{what}: a {type(value).__name__} cannot be read as an array: {error}") from error
    if array.dtype.kind not in "buif":
        raise TypeError(f"{what}: the values are {array.dtype}, not real numbers: pass an array or a tensor of numbers")
    return array


class Histogram:
    """How often values occur. NaN and the infinities are counted apart from the bins.

    `values`: a tensor, an array or a list of numbers, of any shape. `bins`: 1 to 512 of equal width, from the least to the most value.
    `np_histogram`: (counts, edges) instead, as `numpy.histogram` returns them. `num_bins` is wandb's name of `bins`. Raises TypeError for what is
    not numbers, and ValueError for no value at all and for wrong bins.
    """

    kind: MediaKind = "histogram"
    refusal: str | None = None

    def __init__(self, values: Any = None, bins: int = 64, *, np_histogram: Any = None, num_bins: int | None = None) -> None:
        if (values is None) == (np_histogram is None):
            raise TypeError("Histogram takes values or np_histogram=(counts, edges), one of them")
        bins = bins if num_bins is None else num_bins
        if isinstance(bins, bool) or not isinstance(bins, int):
            raise TypeError(f"Histogram: bins={bins!r} is no whole number: pass 1 to {MAX_BINS}")
        if not 1 <= bins <= MAX_BINS:
            raise ValueError(f"Histogram: bins={bins} is not between 1 and {MAX_BINS}")
        self.stored = counted(values, bins) if np_histogram is None else given(np_histogram)

    @property
    def count(self) -> int:
        """How many values there were, finite or not."""
        return self.stored.values

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return 32 * len(self.stored.counts)

    def content(self) -> bytes:
        """Return the content of its artifact."""
        return pack(MediaDocument(histogram=self.stored))

    def words(self) -> str:
        """Return it in words."""
        found = self.stored
        odd = "".join(f", {number:,} {name}" for number, name in ((found.nans, "NaN"), (found.infs, "infinite")) if number)
        span = "" if found.least is None else f" from {found.least:.6g} to {found.most:.6g}"
        return f"(histogram of {plural(found.values, 'value')}{span}{odd})"


def counted(values: Any, bins: int) -> StoredHistogram:
    """Count values by bin."""
    import numpy

    array = array_of(values, "Histogram").ravel()
    if array.size == 0:
        raise ValueError("Histogram: there are no values: log it where there is at least one")
    array = array.astype(numpy.float64)
    nans, infs = int(numpy.isnan(array).sum()), int(numpy.isinf(array).sum())
    finite = array[numpy.isfinite(array)] if nans or infs else array
    if finite.size == 0:
        return StoredHistogram(edges=(), counts=(), values=array.size, nans=nans, infs=infs, mean=None, std=None, least=None, most=None)
    least, most = float(finite.min()), float(finite.max())
    edges = bin_edges(least, most, bins)
    counts, _ = numpy.histogram(finite, edges)
    with numpy.errstate(over="ignore", invalid="ignore"):
        mean, std = float(finite.mean()), float(finite.std())
    return StoredHistogram(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        values=array.size,
        nans=nans,
        infs=infs,
        mean=mean if math.isfinite(mean) else None,
        std=std if math.isfinite(std) else None,
        least=least,
        most=most,
    )


def bin_edges(least: float, most: float, bins: int) -> Any:
    """Edges of bins of equal width. Where the values lie too close for so many, the bins reach a little beyond them."""
    import numpy

    middle = least / 2 + most / 2
    room = max(abs(least), abs(most)) * 1e-9 * bins or 0.5
    if most - least < room and math.isfinite(middle + room):
        least, most = middle - room / 2, middle + room / 2
    part = numpy.linspace(0.0, 1.0, bins + 1)
    edges = least * (1 - part) + most * part  # `most - least` may overflow
    edges[0], edges[-1] = least, most
    return numpy.maximum.accumulate(edges)


def given(np_histogram: Any) -> StoredHistogram:
    """Check counts and edges that the caller has made. Mean and standard deviation are those of the middles of the bins."""
    import numpy

    try:
        raw_counts, raw_edges = np_histogram
    except (TypeError, ValueError):
        raise TypeError("Histogram: np_histogram is not (counts, edges), as numpy.histogram returns them") from None
    counts, edges = array_of(raw_counts, "Histogram counts"), array_of(raw_edges, "Histogram edges").astype(numpy.float64)
    if counts.ndim != 1 or edges.shape != (counts.size + 1,) or not 1 <= counts.size <= MAX_BINS:
        raise ValueError(
            f"Histogram: {counts.shape} counts and {edges.shape} edges: pass 1 to {MAX_BINS} counts in one row, and one edge more than counts"
        )
    if not numpy.isfinite(edges).all() or (numpy.diff(edges) < 0).any():
        raise ValueError("Histogram: the edges must be finite, and none below the one before it")
    if not numpy.isfinite(counts).all() or (counts < 0).any() or (counts != numpy.floor(counts)).any():
        raise ValueError("Histogram: the counts must be whole numbers from 0 up; numpy.histogram makes them without density=True")
    total = int(counts.sum())
    middles = edges[:-1] / 2 + edges[1:] / 2
    mean = float((middles * counts).sum() / total) if total else None
    std = None if mean is None else math.sqrt(float((counts * (middles - mean) ** 2).sum() / total))
    return StoredHistogram(
        edges=tuple(edges.tolist()),
        counts=tuple(int(each) for each in counts.tolist()),
        values=total,
        nans=0,
        infs=0,
        mean=mean if mean is None or math.isfinite(mean) else None,
        std=std if std is None or math.isfinite(std) else None,
        least=float(edges[0]),
        most=float(edges[-1]),
    )


class Table:
    """Rows of text, numbers, truth values and None under named columns. The first 10,000 rows are kept.

    `columns`: up to 200 names. `rows`: sequences of as many cells. `data` is wandb's name of `rows`, and may be a pandas DataFrame, as `columns`
    may. Cells of other types are kept as their text. Raises TypeError or ValueError for columns and rows that do not fit together.
    """

    kind: MediaKind = "table"
    refusal: str | None = None

    def __init__(
        self, columns: Any = None, rows: Iterable[Sequence[Any]] | None = None, *, data: Any = None, dataframe: Any = None
    ) -> None:
        frame = next((each for each in (dataframe, data, columns) if hasattr(each, "itertuples")), None)
        if frame is not None:
            columns, rows = [str(name) for name in frame.columns], frame.itertuples(index=False, name=None)
        elif rows is None:
            rows = () if data is None else data
        if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
            raise TypeError(f"Table: columns={columns!r} is no list of names: Table(columns=['name', 'value'], rows=[...])"[:300])
        if len(columns) > MAX_COLUMNS:
            raise ValueError(f"Table: {len(columns):,} columns; the limit is {MAX_COLUMNS}: log some of them")
        self.columns = [shortened(str(name)) for name in columns]
        self.rows: list[tuple[Cell, ...]] = []
        self.total_rows = 0
        for row in rows or ():
            self.add_data(*self._cells(row))

    def add_data(self, *cells: Any) -> None:
        """Add a row, as of wandb's tables. Raises ValueError unless it has a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(
                f"Table: row {self.total_rows} has {plural(len(cells), 'cell')}, and there are {plural(len(self.columns), 'column')}: {self.columns[:10]}"
            )
        self.total_rows += 1
        if len(self.rows) < MAX_ROWS:
            self.rows.append(tuple(cell_of(cell) for cell in cells))

    def copy(self) -> Table:
        """Return a table with the rows that there are now."""
        found = Table(self.columns)
        found.rows, found.total_rows = list(self.rows), self.total_rows
        return found

    def _cells(self, row: Any) -> Sequence[Any]:
        if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise TypeError(f"Table: row {self.total_rows} is a {type(row).__name__}, no row of cells: {str(row)[:60]!r}")
        return tuple(row)

    @property
    def count(self) -> int:
        """How many rows were logged."""
        return self.total_rows

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return 64 * len(self.rows) * len(self.columns)

    def content(self) -> bytes:
        """Return the content of its artifact."""
        return pack(MediaDocument(table=StoredTable(columns=tuple(self.columns), rows=tuple(self.rows), total_rows=self.total_rows)))

    def words(self) -> str:
        """Return it in words."""
        return f"(table of {plural(self.total_rows, 'row')}: {', '.join(self.columns[:6])})"


def cell_of(value: Any) -> Cell:
    """Return a cell as it is stored. Scalars of numpy and torch are numbers."""
    if (hasattr(value, "item") and getattr(value, "size", 1) in (1, ())) or hasattr(value, "detach"):
        value = _scalar(value.item, value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)  # JSON's readers have no larger whole numbers
    if isinstance(value, float):
        return on_the_wire(float(value))
    return shortened(str(value))


def _scalar(item: Callable[[], Any], value: Any) -> Any:
    try:
        return item()
    except (RuntimeError, ValueError, TypeError):
        return value  # more than one element: its text is the cell


def shortened(text: str) -> str:
    """Cut a text to MAX_CELL_CHARACTERS; lone surrogates and NUL become question marks, since no database keeps them."""
    text = text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}…"
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
