"""The page of licences is what the metadata of the packages says, and a licence that asks for something does not come unnoticed."""

from __future__ import annotations

import re

import pytest

from scripts import licences
from scripts.licences import FILE, NOT_INSTALLED, RECIPROCAL, LicensedPackage, asked_for, brought_along, licence_of, of_the_dashboard

#: Each has its sentence on the page.
KNOWN_RECIPROCAL = {"asyncssh", "certifi", "pathspec", "tqdm"}


def test_the_page_is_what_the_metadata_says() -> None:
    assert FILE.read_text() == licences.page(), "run: python -m scripts.licences"


def test_a_licence_that_asks_for_something_has_a_sentence() -> None:
    asked = asked_for()
    everything = [*asked, *brought_along(asked), *of_the_dashboard()]
    assert {each.name for each in everything if RECIPROCAL.search(each.licence)} == KNOWN_RECIPROCAL
    assert all(f"**{name}**" in licences.HEAD for name in KNOWN_RECIPROCAL)


def test_what_everybody_installs_has_nothing_under_the_gpl_or_the_epl() -> None:
    assert [each.name for each in asked_for() if not each.asked_by and re.search("GPL|EPL", each.licence)] == []
    (ssh,) = [each for each in asked_for() if each.name == "asyncssh"]
    assert ssh == LicensedPackage("asyncssh", "EPL-2.0 OR GPL-2.0-or-later", "ssh")


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("numpy", "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0"),  # an expression
        ("pyyaml", "MIT"),  # a text that is a name
        ("matplotlib", "Python Software Foundation License"),  # a text that is the whole licence: the classifier tells its name
        ("uv", "MIT License or Apache Software License"),  # two classifiers
        *NOT_INSTALLED.items(),
    ],
)
def test_a_licence_is_read_from_wherever_the_metadata_has_it(name: str, licence: str) -> None:
    assert licence_of(name) == licence
