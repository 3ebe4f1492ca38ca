"""What README's two lines of pytest import must come with its line of pip: all of it is in the closure of requirements.txt. Which
distributions belong to that is read from the metadata of what is installed here; no other environment is built."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
#: Rooms are imported as paceline.<room>, tests as tests.<module>.
OURS = {"paceline": ROOT, "scripts": ROOT / "scripts", "tests": ROOT / "tests"}
#: tests/conftest.py imports it in hooks that only pytest-xdist calls.
UNDER_XDIST = ROOT / "tests" / "scheduling.py"
OPTIONAL = ("ImportError", "ModuleNotFoundError")


# --- the distributions that `pip install -r requirements.txt` brings


def asked() -> Iterator[Requirement]:
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith(("#", "-")) and " @ " not in line:
            yield Requirement(line)


def closure() -> set[str]:
    """Canonical names of all distributions that the requirements bring, on this Python and machine."""
    waiting, seen = list(asked()), set[tuple[str, frozenset[str]]]()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        waiting += [each for each in map(Requirement, needed(wanted.name)) if applies(each, wanted.extras)]
    return {name for name, _ in seen}


def needed(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # of another system: its marker says so, or pip would refuse
        return []


def applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))


# --- what the tests import


def modules_imported(path: Path, *, everywhere: bool) -> set[str]:
    """Full names of what a file imports: `everywhere`, or only while it is imported itself. Imports for the type checker, those that a `try`
    forgives, and those below a `pytest.importorskip` do not count."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif not is_left_out(node, everywhere=everywhere):
            waiting += ast.iter_child_nodes(node)
    return found


def is_left_out(node: ast.AST, *, everywhere: bool) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Try):
        return any(name in ast.unparse(handler.type) for handler in node.handlers if handler.type for name in OPTIONAL)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not everywhere or "importorskip" in ast.unparse(node)
    return False


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None for others, and for names inside a module."""
    top, _, rest = module.partition(".")
    if top not in OURS or not rest:
        return None
    parts = rest.split(".")
    of_the_package = top == "paceline" and not (ROOT / parts[0]).is_dir()  # not a room
    path = (ROOT / "paceline" if of_the_package else OURS[top]).joinpath(*parts)
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def foreign_imports(folder: Path) -> dict[str, Path]:
    """Top-level modules of other distributions that running the tests in `folder` imports, each with a file that does so."""
    configuration = (parent / "conftest.py" for parent in folder.parents if parent.is_relative_to(ROOT / "tests"))
    waiting = [*folder.rglob("*.py"), *(path for path in configuration if path.is_file())]
    seen, found = {*waiting, UNDER_XDIST}, dict[str, Path]()
    while waiting:
        path = waiting.pop()
        for module in modules_imported(path, everywhere=path.is_relative_to(ROOT / "tests")):
            ours, top = file_of(module), module.partition(".")[0]
            if ours is not None and ours not in seen:
                seen.add(ours)
                waiting.append(ours)
            elif top not in OURS and top not in sys.stdlib_module_names:
                found.setdefault(top, path)
    return found


@pytest.mark.parametrize("folder", ["api", "distributed"])
def test_the_tests_of_the_quick_start_import_nothing_that_its_requirements_do_not_bring(folder: str) -> None:
    brought, providers = closure(), packages_distributions()
    imported = foreign_imports(ROOT / "tests" / folder)
    assert {"pytest", "torch"} <= imported.keys(), "the walk found less than there is"
    missing = {
        name: str(path.relative_to(ROOT))
        for name, path in sorted(imported.items())
        if not {canonicalize_name(each) for each in providers.get(name, [])} & brought
    }
    assert missing == {}, "add them to requirements.txt, or skip the test without them (pytest.importorskip)"
