"""What a node cannot hold is known from the path alone, with the limit and the way out."""

from __future__ import annotations

import pytest

from paceline.bundles.paths import MOST_NAME_BYTES, MOST_PATH_BYTES, MOST_TARGET_BYTES, what_is_too_long

DEEP = "d" * 239 + "/"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("train.py", None),
        ("a/" + "n" * MOST_NAME_BYTES, None),
        ("a/" + "ü" * 127, None),
        (DEEP * 12 + "x" * (MOST_PATH_BYTES - 12 * 240), None),
        ("link", "../" * 1000 + "x"),
    ],
)
def test_what_a_node_can_hold_is_taken(path: str, target: str | None) -> None:
    assert what_is_too_long(path, target) is None


@pytest.mark.parametrize(
    ("path", "target", "words"),
    [
        ("a/" + "n" * 256 + "/x.py", None, "has a name of 256 bytes, 'nnn"),
        ("a/" + "ü" * 128, None, "has a name of 256 bytes"),
        (DEEP * 13 + "x.py", None, "has 3,124 bytes; a path in a bundle may have 3,072: shorten the names of its folders"),
        ("link", "x/" * (MOST_TARGET_BYTES // 2 + 1), "is a link to a path of 4,096 bytes; a node holds 4,095"),
    ],
)
def test_what_it_cannot_hold_is_named_in_short(path: str, target: str | None, words: str) -> None:
    told = what_is_too_long(path, target)
    assert told is not None
    assert words in told
    assert repr(path[:60])[:-1] in told
    assert len(told) < 500


def test_a_name_that_is_no_text_can_be_printed() -> None:
    told = what_is_too_long("\udcff" * 300)
    assert told is not None
    told.encode()
