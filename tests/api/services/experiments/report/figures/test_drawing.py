"""Figures as files and as parts of a page: they open, in both palettes, whatever the names in them."""

from __future__ import annotations

import functools
import re
import sys
from xml.etree import ElementTree

import pytest

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.figures import drawing, loss, pareto, step_time
from paceline.api.services.experiments.report.figures.bars import MOST_BARS
from paceline.api.services.experiments.report.figures.catalog import FIGURES, find_figure
from paceline.api.services.experiments.report.figures.drawing import DARK, LIGHT, Drawing, inline_svg, png, svg
from paceline.api.services.experiments.report.figures.heat_map import WHATEVER_TELLS_MOST
from tests.api.services.experiments.report.made_up import analysis, subject

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = '<script>alert(1)</script> $x_1$ & "quotes" %s \\n'


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_drawn(name: str) -> None:
    found = find_figure(subject(), name, WHATEVER_TELLS_MOST)
    assert found.table.rows
    root = ElementTree.fromstring(svg(found.drawing))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_a_png_is_one_in_either_palette() -> None:
    found = find_figure(subject(), "memory", WHATEVER_TELLS_MOST)
    light, dark = png(found.drawing, LIGHT), png(found.drawing, DARK)
    assert light.startswith(PNG)
    assert dark.startswith(PNG)
    assert light != dark


def test_the_same_figure_is_the_same_file() -> None:
    found = find_figure(subject(), "scaling", WHATEVER_TELLS_MOST)
    assert svg(found.drawing) == svg(found.drawing)


def test_a_part_of_a_page_takes_the_colours_of_the_page_and_ids_of_its_own() -> None:
    text = inline_svg(find_figure(subject(), "step_time", WHATEVER_TELLS_MOST).drawing, "step_time", "Steps &amp; time")
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == "Steps & time"
    assert "var(--series-2)" in text
    assert not re.search(r"#[0-9a-f]{6}\b", text), "a colour that no theme changes"
    ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    assert all(each.startswith("step_time-") for each in ids)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert used
    assert used <= ids


@pytest.mark.parametrize("name", FIGURES)
def test_names_of_users_are_text(name: str) -> None:
    hostile = [each.model_copy(update={"label": f"{HOSTILE}{each.index}", "strategy": HOSTILE}) for each in analysis().configurations]
    found = find_figure(subject(configurations=hostile), name, WHATEVER_TELLS_MOST)
    text = inline_svg(found.drawing, name, "title")
    ElementTree.fromstring(text)
    assert "<script" not in text


def test_many_configurations_are_drawn_in_part_and_told_in_full() -> None:
    first = next(each for each in analysis().configurations if each.strategy == "ddp")
    many = [first.model_copy(update={"index": at, "label": f"ddp {at}"}) for at in range(200)]
    large = subject(configurations=many, predictions=[], series=[])
    for name in ("throughput", "memory", "step_time"):
        found = find_figure(large, name, WHATEVER_TELLS_MOST)
        assert len(found.table.rows) == 200
        assert f"{MOST_BARS} " in found.caption
        assert found.drawing.height_inches < 10


def test_without_matplotlib_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ProblemError, match=r"pip install 'paceline\[experiments\]'") as missing:
        svg(Drawing(functools.partial(lambda canvas: None)))
    assert (missing.value.code, missing.value.status) == ("figures_unavailable", 501)


def test_the_palettes_have_a_colour_for_each_name() -> None:
    for palette in drawing.PALETTES.values():
        colours = [palette.surface, palette.text, palette.muted, palette.line, palette.neutral, palette.accent, *palette.series]
        assert len(set(colours)) == len(colours), "each colour of a drawing is replaced by its name"


# --- what is in them


def test_parts_stand_in_the_order_of_a_step() -> None:
    assert step_time.part_names(analysis()) == ["data", "forward", "backward", "communication", "optimizer", "other"]


def test_the_edge_of_the_front_gets_dearer_with_speed() -> None:
    points = [pareto.ParetoPoint(str(speed), speed, cost, True, False) for speed, cost in ((1, 5), (2, 3), (3, 4), (3, 6), (0.5, 2))]
    assert [(each.speed, each.cost) for each in pareto.staircase(points)] == [(0.5, 2), (2, 3), (3, 4)]


def test_a_crowded_figure_shows_the_recommended_loss_and_the_single_processes() -> None:
    whole = analysis()
    order = [each.configuration for each in loss.drawn_first(whole, whole.series)]
    baselines = {each.index for each in whole.configurations if each.baseline}
    assert order[0] == whole.best
    assert set(order[1:3]) == baselines


def test_a_figure_without_anything_to_show_says_which_ones_have() -> None:
    with pytest.raises(ProblemError, match="these have something: scaling, throughput"):
        find_figure(subject(series=[]), "loss", WHATEVER_TELLS_MOST)
    with pytest.raises(ProblemError, match="take one of: scaling"):
        find_figure(subject(), "speed", WHATEVER_TELLS_MOST)
