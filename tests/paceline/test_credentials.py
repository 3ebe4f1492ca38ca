"""What whoever starts a coordinator hands over to it: one file, for its owner alone, read once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.credentials import JOIN_PREFIX, KEY_PREFIX, FirstCredentials, file_in


def test_what_was_handed_over_is_taken_once(tmp_path: Path) -> None:
    made = FirstCredentials.make("local", 2)
    made.hand_over(tmp_path)
    assert file_in(tmp_path).stat().st_mode & 0o777 == 0o600
    assert FirstCredentials.take(tmp_path) == made
    assert FirstCredentials.take(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_each_secret_is_another_one() -> None:
    made = FirstCredentials.make("local", 3)
    assert made.key.startswith(KEY_PREFIX)
    assert all(token.startswith(JOIN_PREFIX) for token in made.join_tokens)
    assert len({made.key, *made.join_tokens}) == 4


def test_a_damaged_file_is_gone_after_it_was_read(tmp_path: Path) -> None:
    file_in(tmp_path).write_text("{")
    with pytest.raises(msgspec.DecodeError):
        FirstCredentials.take(tmp_path)
    assert FirstCredentials.take(tmp_path) is None
