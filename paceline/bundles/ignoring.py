"""Which files of a folder are left out of a bundle: what `.gitignore` and `.pacelineignore` say, and what is never code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from paceline.bundles.errors import UnpackableFileError

OF_GIT, OURS = ".gitignore", ".pacelineignore"
#: Left out whatever the rules say: the history of git and others, caches of Python, and data of Paceline's own.
NEVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".paceline", ".DS_Store"})
#: A folder with this file in it is a virtual environment.
ENVIRONMENT_MARK = "pyvenv.cfg"
MOST_RULE_BYTES = 1 << 20


class IgnoreRules(NamedTuple):
    """The patterns of one ignore file. `base`: its folder, relative to the top of the repository, '' or ending in '/'."""

    base: str
    patterns: tuple[GitIgnoreSpecPattern, ...]
    is_ours: bool = False

    def verdict(self, path: str) -> bool | None:
        """Whether the last pattern that matches `path`, which begins with `base`, leaves it out; None: no pattern does. Patterns that match a folder above
        it are not asked: a folder that is left out is never entered."""
        inner = path.removeprefix(self.base)
        return next((pattern.include for pattern in reversed(self.patterns) if _matches(pattern, inner)), None)


class Ignoring(NamedTuple):
    """The rules that hold in a folder, in the order in which they are asked last to first: those of git and then our own, each the outermost first.
    `prefix`: from the top of the repository to the packed folder."""

    prefix: str
    rules: tuple[IgnoreRules, ...]

    def within(self, folder: Path, here: str) -> Ignoring:
        """The rules in the folder `here` of the packed `folder`, with those of its own ignore files."""
        return Ignoring(self.prefix, _in_order((*self.rules, *_rules_in(folder / here, self.prefix + here))))

    def leaves_out(self, path: str) -> bool:
        """Whether the rules leave out `path`, relative to the packed folder; that of a folder ends in '/'. The innermost rule that says
        anything decides, as in git; our own before any of git's."""
        seen = self.prefix + path
        for rules in reversed(self.rules):
            if (verdict := rules.verdict(seen)) is not None:
                return verdict
        return False


def rules_above(folder: Path) -> Ignoring:
    """The rules for `folder` from the folders above it, up to the top of its git repository; none where it lies in no repository."""
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    prefix = "" if top == folder else f"{folder.relative_to(top).as_posix()}/"
    rules = list(_rules_of_file(top / ".git" / "info" / "exclude", ""))
    here = ""
    for name in prefix.split("/")[:-1]:
        rules += _rules_in(top / here, here)
        here += f"{name}/"
    return Ignoring(prefix, _in_order(rules))


def _in_order(rules: Iterable[IgnoreRules]) -> tuple[IgnoreRules, ...]:
    return tuple(sorted(rules, key=lambda each: each.is_ours))


def is_never_code(entry: os.DirEntry[str]) -> bool:
    return entry.name in NEVER or entry.name.endswith(".pyc") or (entry.is_dir() and os.path.exists(os.path.join(entry, ENVIRONMENT_MARK)))


def _matches(pattern: GitIgnoreSpecPattern, path: str) -> bool:
    """Whether a pattern matches a path itself. pathspec's expressions match what lies below a folder as well; those of patterns of stars alone, as `*` and
    `*/`, search for any character, or for a slash."""
    if (regex := pattern.regex) is None:
        return False
    if not regex.pattern.startswith("^"):
        return regex.search(path[-1:]) is not None
    text = str(pattern).rstrip()
    if not text.removesuffix("/").endswith("/**"):
        return regex.fullmatch(path) is not None
    is_right_kind = path.endswith("/") or not text.endswith("/")
    return is_right_kind and regex.search(path.removesuffix("/")) is not None  # below the folder, which does not match itself


def _rules_in(folder: Path, base: str) -> Iterator[IgnoreRules]:
    for name in (OF_GIT, OURS):
        yield from _rules_of_file(folder / name, base)


def _rules_of_file(file: Path, base: str) -> Iterator[IgnoreRules]:
    try:
        if not file.is_file():
            return
        if file.stat().st_size > MOST_RULE_BYTES:
            raise UnpackableFileError(f"{file} has more than {MOST_RULE_BYTES:,} bytes; a list of patterns is shorter")
        lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
        yield IgnoreRules(base, tuple(map(GitIgnoreSpecPattern, lines)), is_ours=file.name == OURS)
    except (OSError, ValueError) as error:
        raise UnpackableFileError(f"{file} cannot be read as a list of patterns: {error}") from error
