"""The report as one HTML page that needs nothing else: the interpretation first, then figures with their tables, then all tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.api.services.experiments.report.facts_line import facts_line, kept_apart, method
from paceline.api.services.experiments.report.figures.catalog import all_figures
from paceline.api.services.experiments.report.figures.drawing import inline_svg, why_undrawn
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.markup import Markup, join, tag
from paceline.api.services.experiments.report.report_table import ReportTable
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.api.services.experiments.report.tables import all_tables
from paceline.cluster.experiments.findings import Sentence

STYLE = Path(__file__).with_name("page.css")


def html_page(subject: ReportSubject) -> bytes:
    """The page. Where figures cannot be drawn it says so, with the way out, and has the tables of all figures."""
    undrawn = why_undrawn()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{subject.name}: report"),
        tag("style", Markup(STYLE.read_text())),
    )
    body = tag(
        "main",
        _header(subject),
        _interpretation(subject.analysis.sentences),
        tag("section", tag("p", f"Without figures, whose numbers stand in the tables: {undrawn}.", class_="note")) if undrawn else "",
        [_figure(each, drawn=undrawn is None) for each in all_figures(subject)],
        [_table_section(each) for each in all_tables(subject)],
        _specification(subject),
        tag("footer", method(subject)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n".encode()


def _header(subject: ReportSubject) -> Markup:
    return tag(
        "header",
        tag("div", f"Experiment in {subject.project}", class_="kicker"),
        tag("h1", subject.name),
        tag("p", subject.description) if subject.description else "",
        tag("div", [tag("span", tag("b", number), f" {words}") for number, words in facts_line(subject)], class_="facts"),
    )


def _interpretation(sentences: Sequence[Sentence]) -> Markup:
    """The recommendation large, then the findings, then the doubts."""
    recommended, findings, doubts = kept_apart(sentences)
    if not sentences:
        return tag("section", tag("p", "Nothing can be said yet: no trial has finished a step."), class_="interpretation")
    return tag(
        "section",
        [tag("p", each, class_="recommendation") for each in recommended],
        tag("ul", [tag("li", each) for each in findings]) if findings else "",
        [tag("h3", "What speaks against relying on it"), tag("ul", [tag("li", each) for each in doubts], class_="doubts")]
        if doubts
        else "",
        class_="interpretation",
    )


def _figure(each: ReportFigure, *, drawn: bool) -> Markup:
    return tag(
        "section",
        tag("h2", each.title),
        tag("p", each.caption, class_="caption"),
        tag("figure", Markup(inline_svg(each.drawing, each.name, str(join([each.title]))))) if drawn else "",
        _table(each.table),
        id=each.name,
    )


def _table_section(each: ReportTable) -> Markup:
    return tag("section", tag("h2", each.title), _table(each))


def _table(each: ReportTable) -> Markup:
    head = tag("tr", [_cell("th", at, title, each) for at, title in enumerate(each.columns)])
    body = [_row(at, row, each) for at, row in enumerate(each.rows)]
    drawn = tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll")
    return join([drawn, tag("p", each.note, class_="note") if each.note else ""])


def _row(at: int, row: Iterable[str], each: ReportTable) -> Markup:
    cells = [_cell("td", place, text, each) for place, text in enumerate(row)]
    return tag("tr", cells, class_="marked") if at in each.marked else tag("tr", cells)


def _cell(name: str, place: int, text: str, each: ReportTable) -> Markup:
    return tag(name, text, class_="number") if place in each.numbers else tag(name, text)


def _specification(subject: ReportSubject) -> Markup:
    text = json.dumps(subject.spec, indent=2, ensure_ascii=False)
    return tag("section", tag("details", tag("summary", "What was asked for"), tag("pre", text)))
