"""Every format of a report opens with an ordinary reader, has what the analysis says, and takes names for text."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.exports import MEDIA_TYPES, ExportFormat, ExportOrder, check_order, export, file_name
from paceline.api.services.experiments.report.facts_line import facts_line
from paceline.api.services.experiments.report.figures.heat_map import HeatMapChoice
from paceline.api.services.experiments.report.markdown import inline
from paceline.api.services.experiments.report.raw_data import harmless
from paceline.api.services.experiments.report.tables import configurations as configurations_table
from paceline.api.services.experiments.report.tables import predictions
from paceline.cluster.experiments.findings import Analysis, Estimate, Prediction, Pruned
from tests.api.services.experiments.report.made_up import analysis, configurations, subject

HOSTILE = "<img src=x onerror=alert(1)>|`$x$`\n=cmd()"
VOID = {"meta", "br", "hr", "path", "use", "rect", "line"}


class Page(HTMLParser):
    """The tags and texts of a page; raises where an element is closed that is not open."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_analysis() -> Analysis:
    found = analysis()
    configurations = [each.model_copy(update={"label": HOSTILE, "strategy": HOSTILE}) for each in found.configurations]
    sentences = [each.model_copy(update={"text": HOSTILE}) for each in found.sentences]
    return found.model_copy(update={"configurations": configurations, "sentences": sentences, "axes": [*found.axes, HOSTILE]})


# --- one page


@pytest.fixture(scope="module")
def page() -> bytes:
    return export(subject(), ExportOrder("html"))


def test_the_page_is_whole_and_needs_nothing_else(page: bytes) -> None:
    found = Page(page)
    assert found.open == []
    assert [name for name, attributes in found.tags if name in ("script", "link", "img", "iframe", "object")] == []
    assert not re.search(rb"""(?:src|href)=["'](?!#)""", page), "nothing is fetched"
    assert b"url(http" not in page
    assert b"@import" not in page


def test_the_page_says_the_recommendation_first_and_then_shows_figures_with_tables(page: bytes) -> None:
    found = Page(page)
    order = [
        "Take fsdp on 8 ranks",
        "What speaks against",
        "Scaling efficiency",
        "Throughput",
        "Loss by samples",
        "All configurations",
        "Refused by",
    ]
    places = [found.text.index(each) for each in order]
    assert places == sorted(places)
    assert sum(name == "figure" for name, _ in found.tags) == 7
    assert sum(name == "table" for name, _ in found.tags) >= 14
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "ids are unique in the page"


def test_the_page_follows_its_readers_theme_and_can_be_printed(page: bytes) -> None:
    assert b"prefers-color-scheme: dark" in page
    assert b"@media print" in page


def test_what_users_write_is_text_on_the_page() -> None:
    found = Page(export(subject(name=HOSTILE, **hostile_analysis().__dict__), ExportOrder("html")))
    assert found.open == []
    assert all(name != "img" for name, _ in found.tags)
    assert found.text.count("<img src=x onerror=alert(1)>") > 20


def test_the_head_of_a_report_has_what_all_trials_have_used() -> None:
    told = facts_line(subject())
    assert ("5.25", "slot-hours") in told, "not the sum over configurations"
    assert ("7,200 kJ", "of the cards") in told
    assert [words for _, words in facts_line(subject(slot_hours=None, energy_joules=None)) if words in ("slot-hours", "of the cards")] == []


def test_an_analysis_of_nothing_is_a_page_too() -> None:
    nothing = subject()
    empty = Analysis(trials=0, completed=0, failed=0, refused=0, axes=[], configurations=[])
    found = Page(export(type(nothing)(**(nothing.__dict__ | {"analysis": empty, "complete": False})), ExportOrder("html")))
    assert "Nothing can be said yet" in found.text
    assert "while trials can still change it" in found.text


# --- words and numbers


def test_markdown_has_the_interpretation_and_every_table() -> None:
    text = export(subject(), ExportOrder("md")).decode()
    assert text.startswith("# ddp-vs-fsdp\n")
    assert "**Take fsdp on 8 ranks" in text
    assert "## Scaling efficiency" in text
    tables = [line for line in text.splitlines() if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert len(tables) >= 14


def test_markdown_shows_names_as_they_are() -> None:
    text = export(subject(name=HOSTILE, **hostile_analysis().__dict__), ExportOrder("md")).decode()
    assert "<img" not in text.replace("\\<", "")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows), "a newline in a name would end its row"
    assert inline("1. a | b *c* [d](e) & <f>") == r"1\. a \| b \*c\* \[d\](e) &amp; \<f\>"


def test_csv_has_a_row_for_each_configuration_and_numbers_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(export(subject(), ExportOrder("csv")).decode())))
    found = analysis().configurations
    assert len(rows) == len(found)
    assert float(rows[0]["samples_per_second"]) == found[0].samples_per_second.value if found[0].samples_per_second else False
    assert [row["label"] for row in rows if row["recommended"] == "True"] == ["fsdp, 8 ranks, batch 64"]
    assert rows[-1]["refusal"].startswith("global_batch_size=64")


def test_a_pruned_configuration_shows_what_it_had_reached_and_when() -> None:
    reached = [Pruned(step=9, metric=Estimate(value=2.31, count=1)), Pruned(step=9, metric=None)]
    rows = [each.model_copy(update={"metric": None, "pruned": found}) for each, found in zip(configurations(), reached, strict=False)]
    only = subject(configurations=rows)
    cells = [row[-3] for row in configurations_table(only).rows]
    assert cells == ["2.31 at step 9, pruned", "not finite at step 9, pruned"]
    table = list(csv.DictReader(io.StringIO(export(only, ExportOrder("csv")).decode())))
    assert [(row["metric"], row["pruned_at_step"], row["pruned_metric"]) for row in table] == [("", "9", "2.31"), ("", "9", "")]


def test_csv_computes_nothing_in_a_spreadsheet() -> None:
    assert [harmless(each) for each in ("=1+1", "+a", "-a", "@a", "a=b", -1.5)] == ["'=1+1", "'+a", "'-a", "'@a", "a=b", -1.5]
    text = export(subject(name="=cmd", **hostile_analysis().__dict__), ExportOrder("csv")).decode()
    assert len(list(csv.reader(io.StringIO(text)))) == len(analysis().configurations) + 1


def test_json_has_everything() -> None:
    found = json.loads(export(subject(), ExportOrder("json")))
    assert Analysis.model_validate(found["analysis"]) == analysis()
    assert (found["name"], found["spec"]["repeats"], found["complete"]) == ("ddp-vs-fsdp", 3, True)


def test_words_and_numbers_need_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for kind in ("md", "csv", "json"):
        assert export(subject(), ExportOrder(kind))
    images: tuple[ExportFormat, ...] = ("svg", "png")
    for kind in images:
        with pytest.raises(ProblemError, match="COORDINATOR_EXTRAS=experiments; format=html, md, csv and json"):
            export(subject(), ExportOrder(kind, "scaling"))


def test_without_matplotlib_the_page_has_the_tables_of_figures_and_says_what_draws_them(
    page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's image has no matplotlib: the whole report was refused there."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found, drawn = Page(export(subject(), ExportOrder("html"))), Page(page)
    assert found.open == []
    assert "pip install 'paceline[experiments]'" in found.text
    assert "--build-arg COORDINATOR_EXTRAS=experiments" in found.text
    assert "Without figures" not in drawn.text
    assert not [name for name, _ in found.tags if name in ("figure", "svg")]
    assert sum(name == "table" for name, _ in found.tags) == sum(name == "table" for name, _ in drawn.tags)


# --- orders


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (ExportOrder("svg"), "say which: figure=scaling"),
        (ExportOrder("png", "speed"), "figure=speed is not known"),
        (ExportOrder("csv", "scaling"), "goes with format=svg or png"),
        (ExportOrder("svg", "loss", heat_map=HeatMapChoice("a")), "go with it alone"),
    ],
)
def test_an_order_that_means_nothing_is_refused(order: ExportOrder, words: str) -> None:
    with pytest.raises(ProblemError, match=words) as refused:
        check_order(order)
    assert refused.value.status == 400


def test_files_have_names_that_every_system_takes() -> None:
    assert file_name('a/b "c"\r\n: d', ExportOrder("svg", "loss")) == "a-b-c-d-loss.svg"
    assert file_name("../..", ExportOrder("html")) == "experiment-report.html"
    assert set(MEDIA_TYPES) == {"html", "md", "csv", "json", "svg", "png"}


def test_what_several_predictions_assume_is_told_once() -> None:
    told = [
        Prediction(
            configuration=0,
            ranks=ranks,
            step_seconds=1.0,
            samples_per_second=1.0,
            efficiency=1.0,
            assumptions=f"CPU slots; {ranks} machines; memory is that of tensors",
        )
        for ranks in (8, 16)
    ]
    note = predictions(subject(predictions=told)).note
    assert note == "Predictions of the cost model. Assumed: CPU slots; 8 machines; memory is that of tensors; 16 machines."
