"""How figures are drawn: matplotlib, loaded when the first figure is, two palettes, and SVG or PNG.

Hazard: matplotlib takes most of a second to load and is not safe for threads. It is used in the worker process alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from paceline.api.errors import ProblemError
from paceline.extras import pip_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 7.2
DOTS_PER_INCH = 160
MARKERS = ("o", "s", "^", "D", "v", "P")
_SIZE = re.compile(r'width="[\d.]+pt" height="[\d.]+pt"')
_IDS = re.compile(r'(\bid="|url\(#|href="#)')


@dataclass(frozen=True)
class Palette:
    """The colours of the dashboard (`dashboard/src/app/styles.css`), by their names there."""

    surface: str
    text: str
    muted: str
    line: str
    neutral: str
    accent: str
    series_1: str
    series_2: str
    series_3: str
    series_4: str
    series_5: str
    series_6: str

    @property
    def series(self) -> Sequence[str]:
        return (self.series_1, self.series_2, self.series_3, self.series_4, self.series_5, self.series_6)

    def colour(self, at: int) -> str:
        return self.series[at % len(self.series)]


#: `accent` and `series_1` of the dashboard are one colour; here they differ by one, so that each colour of a drawing has one name.
LIGHT = Palette("#ffffff", "#171a21", "#5a6170", "#dfe2e9", "#a3a9b8", "#4154c9",
                "#4154c8", "#c2610c", "#12826f", "#9b3fb5", "#b02a55", "#6b7280")  # fmt: skip
DARK = Palette("#161920", "#e7e9ef", "#9aa2b4", "#282d38", "#5c6475", "#8593f6",
               "#8593f5", "#f0994a", "#4cc4ae", "#d08be6", "#f0809f", "#9aa2b3")  # fmt: skip
PALETTES = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True)
class Canvas:
    """The axes that a figure is drawn on, and its colours."""

    axes: Axes
    palette: Palette


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn any number of times. `draw` must not keep the canvas."""

    draw: Callable[[Canvas], None]
    height_inches: float = 3.9


def why_undrawn() -> str | None:
    """Why this coordinator draws no figures, with the way out; None where it draws them."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return (
            f"figures are drawn with matplotlib, which is not installed beside this coordinator; run: {pip_install('experiments')}, "
            "or build its image with --build-arg COORDINATOR_EXTRAS=experiments"
        )
    return None


def require_matplotlib() -> None:
    """Raise ProblemError where figures cannot be drawn, with the way out."""
    if reason := why_undrawn():
        raise ProblemError("figures_unavailable", f"{reason}; format=html, md, csv and json tell all numbers without figures")


def svg(drawing: Drawing, palette: Palette = LIGHT) -> bytes:
    """The figure as an SVG file that looks the same everywhere: its letters are outlines."""
    with _drawn(drawing, palette, letters="path") as figure:
        return _saved(figure, "svg", facecolor=palette.surface)


def png(drawing: Drawing, palette: Palette = LIGHT) -> bytes:
    with _drawn(drawing, palette) as figure:
        return _saved(figure, "png", facecolor=palette.surface, dpi=DOTS_PER_INCH)


def inline_svg(drawing: Drawing, name: str, title: str) -> str:
    """The figure as an element of a page: its colours are the page's variables, its letters the page's, its ids begin with `name`."""
    with _drawn(drawing, LIGHT, letters="none") as figure:
        text = _saved(figure, "svg", facecolor="none").decode()
    text = text[text.index("<svg") :]
    for field in fields(Palette):
        text = text.replace(getattr(LIGHT, field.name), f"var(--{field.name.replace('_', '-')})")
    text = _IDS.sub(rf"\g<1>{name}-", text)
    return _SIZE.sub(f'role="img" aria-label="{title}"', text, count=1)


@contextmanager
def _drawn(drawing: Drawing, palette: Palette, letters: str = "path") -> Iterator[Figure]:
    """A figure without pyplot, which would keep every one of them."""
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style(palette, letters)):
        figure = Figure(figsize=(WIDTH_INCHES, drawing.height_inches), layout="constrained")
        FigureCanvasAgg(figure)
        drawing.draw(Canvas(figure.add_subplot(), palette))
        yield figure


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    metadata = {"Date": None, "Creator": "Paceline"} if kind == "svg" else {"Software": "Paceline"}
    figure.savefig(target, format=kind, metadata=metadata, **options)
    return target.getvalue()


def _style(palette: Palette, letters: str) -> Any:
    """Settings of matplotlib. `text.parse_math` is off, since names may have dollars in them."""
    from cycler import cycler

    return {
        "text.parse_math": False,
        "svg.fonttype": letters,
        "svg.hashsalt": "paceline",
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": palette.text,
        "axes.labelcolor": palette.muted,
        "axes.edgecolor": palette.line,
        "axes.facecolor": "none",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=list(palette.series)),
        "axes.unicode_minus": True,
        "xtick.color": palette.line,
        "ytick.color": palette.line,
        "xtick.labelcolor": palette.muted,
        "ytick.labelcolor": palette.muted,
        "grid.color": palette.line,
        "grid.linewidth": 0.7,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "legend.labelcolor": palette.text,
    }
