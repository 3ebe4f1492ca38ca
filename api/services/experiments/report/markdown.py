"""The report as Markdown: the interpretation and every table, without figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.api.services.experiments.report.facts_line import facts_line, kept_apart, method
from paceline.api.services.experiments.report.figures.catalog import all_figures
from paceline.api.services.experiments.report.report_table import ReportTable
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.api.services.experiments.report.tables import all_tables

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!])")
_SPACE = re.compile(r"\s+")
#: What would begin a list, a quote or a heading at the start of a line.
_START = re.compile(r"^(\d+)([.)])(?=\s|$)|^([-+=])(?=[-+=\s]|$)")


def markdown(subject: ReportSubject) -> bytes:
    recommended, findings, doubts = kept_apart(subject.analysis.sentences)
    facts = ", ".join(f"{number} {words}" for number, words in facts_line(subject))
    blocks = [
        f"# {inline(subject.name)}",
        f"Experiment in {inline(subject.project)}. {inline(facts)}.",
        inline(subject.description),
        *(f"**{inline(each)}**" for each in recommended),
        _bullets(findings),
        "Doubts:\n\n" + _bullets(doubts) if doubts else "",
        *(_with_table(each.title, each.caption, each.table) for each in all_figures(subject)),
        *(_with_table(each.title, "", each) for each in all_tables(subject)),
        inline(method(subject)),
    ]
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def inline(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    escaped = _SPECIAL.sub(r"\\\1", _SPACE.sub(" ", text).strip()).replace("&", "&amp;")
    return _START.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", escaped)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {inline(each)}" for each in sentences)


def _with_table(title: str, caption: str, table: ReportTable) -> str:
    blocks = [f"## {inline(title)}", inline(caption), _table(table), inline(table.note)]
    return "\n\n".join(block for block in blocks if block)


def _table(table: ReportTable) -> str:
    rule = ["---:" if at in table.numbers else "---" for at in range(len(table.columns))]
    rows = [[f"**{inline(cell)}**" if at in table.marked and place == 0 else inline(cell) for place, cell in enumerate(row)]
            for at, row in enumerate(table.rows)]  # fmt: skip
    lines = [[inline(each) or " " for each in table.columns], rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
