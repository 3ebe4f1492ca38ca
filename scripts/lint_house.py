"""The house rules that no other linter knows, from the syntax tree: lengths, silent excepts, sleeps in tests, environment reads, unfinished work,
docstrings that cannot be read alone, class names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import lint_docstrings
from scripts.steps import ROOT

MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = {".py": 400, ".tsx": 250, ".ts": 300}
ENVIRONMENT_READERS = {"api/settings.py", "cluster/agent/settings.py", "distributed/env.py", "cli/settings.py"}
#: Development tools and tests are no part of the product; they may read the environment.
OUTSIDE = ("tests/", "scripts/")
GENERATED = re.compile(r"\.generated\.|routeTree\.gen|^db/migrations/(control|metrics)/|^dashboard/dist/|^cli/api_types\.py\Z")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def main() -> int:
    sources = {path: (ROOT / path).read_text(errors="replace") for path in tracked_files()}
    findings = [finding for path, text in sources.items() for finding in check_file(path, text)]
    findings += repeated_class_names(sources)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def tracked_files() -> list[str]:
    """Source files that git knows or would add, without generated ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.ts", "*.tsx"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({name for name in names if not GENERATED.search(name) and (ROOT / name).is_file()})


def check_file(path: str, text: str) -> list[Finding]:
    findings = [*_length(path, text), *_unfinished(path, text)]
    if path.endswith(".py"):
        tree = ast.parse(text, path)
        findings += [
            *_functions(path, tree),
            *_silent_excepts(path, tree),
            *_sleeps(path, tree),
            *_environment(path, tree),
            *_loose_ends(path, tree),
            *_slow_writes(path, tree),
            *_docstrings(path, tree),
        ]
    return findings


def repeated_class_names(sources: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each public class of the product whose name another one has: in a stack trace or a search it has to stand alone."""
    first: dict[str, str] = {}
    findings = []
    for path, text in sources.items():
        if not path.endswith(".py") or path.startswith((*OUTSIDE, "examples/")):
            continue
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                place = f"{path}:{node.lineno}"
                if first.setdefault(node.name, place) != place:
                    findings.append(
                        Finding(path, node.lineno, f"{first[node.name]} is a class {node.name} too: give each a name of its own")
                    )
    return findings


def _docstrings(path: str, tree: ast.Module) -> Iterator[Finding]:
    for line, message in lint_docstrings.check(path, tree):
        yield Finding(path, line, message)


def _length(path: str, text: str) -> Iterator[Finding]:
    lines, limit = text.count("\n"), MAX_FILE_LINES[Path(path).suffix]
    if lines > limit:
        yield Finding(path, limit, f"{lines} lines, the limit is {limit}: split it by idea")


def _unfinished(path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if mark := UNFINISHED.search(line):
            yield Finding(path, number, f"{mark.group()}: finish it or file an issue")


def _functions(path: str, tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield Finding(path, node.lineno, f"{node.name} has {lines} lines, the limit is {MAX_FUNCTION_LINES}: split it by phase")


def _silent_excepts(path: str, tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and all(isinstance(part, ast.Pass) for part in node.body):
            yield Finding(path, node.lineno, "a broad except that says nothing: name the exception, or log it")


def _is_broad(kind: ast.expr | None) -> bool:
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))


def _sleeps(path: str, tree: ast.AST) -> Iterator[Finding]:
    """A sleep between two looks of a loop that has a deadline is a wait for an event; any other is a guess.

    What a test gives a job to run is no test.
    """
    if not path.startswith("tests/") or "/user_code/" in path:
        return
    polls = {sleep for loop in ast.walk(tree) if isinstance(loop, ast.While) for sleep in _sleep_lines(loop)}
    for line in sorted(set(_sleep_lines(tree)) - polls):
        yield Finding(path, line, "time.sleep in a test: wait for the event, in a loop with a deadline")


def _sleep_lines(tree: ast.AST) -> list[int]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if ast.unparse(call.func) == "time.sleep"]


def _environment(path: str, tree: ast.AST) -> Iterator[Finding]:
    """Reading one variable is configuration; handing the whole environment to a child is not."""
    if path in ENVIRONMENT_READERS or path.startswith(OUTSIDE):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Subscript) and _reads_a_variable(node):
            yield Finding(path, node.lineno, f"environment read outside {', '.join(sorted(ENVIRONMENT_READERS))}")


def _loose_ends(path: str, tree: ast.AST) -> Iterator[Finding]:
    """A pattern that ends in $ takes a newline behind what it describes, so that "admin\\n" passes for "admin"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("re.match", "re.search", "re.compile") and _ends_in_dollar(node):
            yield Finding(
                path, node.lineno, "a pattern that ends in $ lets a newline through: use re.fullmatch, or \\Z; with re.MULTILINE $ is right"
            )


def _ends_in_dollar(call: ast.Call) -> bool:
    pattern = call.args[0] if call.args else None
    flags = " ".join(map(ast.unparse, [*call.args[1:], *(keyword.value for keyword in call.keywords)]))
    if not isinstance(pattern, ast.Constant) or "re.M" in flags:
        return False
    value = pattern.value
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return text.endswith("$") and not text.endswith("\\$")


def _slow_writes(path: str, tree: ast.AST) -> Iterator[Finding]:
    """A route that has a WriteSession is in its transaction already: on SQLite no other request writes until the body is there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef) and any(_is_write_session(each) for each in node.args.args):
            for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
                if ast.unparse(call.func) in ("request.body", "request.json", "request.stream", "request.form", "parse"):
                    yield Finding(
                        path, call.lineno, "a body is read inside of a transaction: read it first, then `async with services.write()`"
                    )


def _is_write_session(argument: ast.arg) -> bool:
    return argument.annotation is not None and ast.unparse(argument.annotation) == "WriteSession"


def _reads_a_variable(node: ast.Call | ast.Subscript) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "os.environ"
    return ast.unparse(node.func) in ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault")


if __name__ == "__main__":
    sys.exit(main())
