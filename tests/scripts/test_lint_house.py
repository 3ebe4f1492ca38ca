"""The house lint finds what it is for, and only that."""

from __future__ import annotations

import ast

import pytest

from scripts import lint_docstrings
from scripts.lint_house import MAX_FILE_LINES, MAX_FUNCTION_LINES, check_file, repeated_class_names

LONG = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
UNFINISHED = "# TO" + "DO later\n"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("api/a.py", LONG, "f has 51 lines"),
        ("api/a.py", "x = 1\n" * (MAX_FILE_LINES[".py"] + 1), "401 lines"),
        ("dashboard/a.tsx", "x\n" * 251, "251 lines"),
        ("api/a.py", UNFINISHED, "finish it"),
        ("api/a.py", "try:\n    f()\nexcept Exception:\n    pass\n", "says nothing"),
        ("api/a.py", "try:\n    f()\nexcept:\n    pass\n", "says nothing"),
        ("tests/test_a.py", "import time\ntime.sleep(1)\n", "time.sleep"),
        ("cluster/a.py", "import os\nos.environ['A']\n", "environment read"),
        ("cluster/a.py", "import os\nos.getenv('A')\n", "environment read"),
        ("cluster/a.py", "import os\nos.environ.get('A')\n", "environment read"),
        ("api/a.py", "import re\nre.match(r'^a$', text)\n", "lets a newline through"),
        ("api/a.py", "import re\nNAME = re.compile('^[a-z]+$')\n", "lets a newline through"),
        ("api/a.py", "import re\nre.search(rb'a$', text)\n", "lets a newline through"),
        ("api/a.py", "async def join(request, session: WriteSession):\n    await request.body()\n", "inside of a transaction"),
    ],
)
def test_finds(path: str, text: str, expected: str) -> None:
    (finding,) = check_file(path, text)
    assert expected in str(finding)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("api/a.py", "try:\n    f()\nexcept KeyError:\n    pass\n"),
        ("api/a.py", "try:\n    f()\nexcept Exception:\n    log()\n"),
        ("tests/test_a.py", "import time\nwhile not done():\n    time.sleep(0.1)\n"),
        ("tests/e2e/user_code/a.py", "import time\ntime.sleep(1)\n"),
        ("scripts/a.py", "import os, time\ntime.sleep(1)\nos.environ['A']\n"),
        ("cluster/a.py", "import os\nchild = {**os.environ, 'A': '1'}\nos.environ['B'] = '2'\n"),
        ("cli/settings.py", "import os\nos.environ['A']\n"),
        ("api/a.py", "import re\nre.fullmatch('^a$', text)\nre.search('^a$', text, re.MULTILINE)\nre.match(r'a\\$', text)\n"),
        ("api/a.py", "async def join(request):\n    await request.body()\n"),
        ("api/a.py", "\n".join(LONG.splitlines()[:-1]) + "\n"),
    ],
)
def test_leaves_alone(path: str, text: str) -> None:
    assert check_file(path, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('def rank_of():\n    """Round and round."""\n', "docstring of rank_of: fewer than 4 words"),
        ('def end_of():\n    """Of all of them; each is let go when it is done."""\n', 'begins with "Of"'),
        ('class TreeTally:\n    """The same, of a rank beside whose pipeline there are only replicas."""\n', 'begins with "The same"'),
        ('class A:\n    async def wait(self):\n        """It waits for all works in order."""\n', "docstring of A.wait: begins"),
        ('class A:\n    """What is known of some points, and more."""\n', 'begins with "What"'),
        ('"""Those that have finished a step in it."""\n', "docstring of training/a.py: begins"),
    ],
)
def test_finds_docstrings_that_cannot_be_read_alone(text: str, expected: str) -> None:
    ((line, message),) = lint_docstrings.check("training/a.py", ast.parse(text))
    assert expected in message
    assert text.splitlines()[line - 1].lstrip().startswith(("def", "class", "async def", '"""'))


@pytest.mark.parametrize(
    "text",
    [
        'def rank_of():\n    """Stages are assigned to ranks round-robin."""\n',
        'def _end_of():\n    """Of all of them."""\n',
        'class _A:\n    def end(self):\n        """Of all of them."""\n',
        '"""What a job trains: models and data that are built in."""\n',
        'def offset():\n    """Offset of a record in bytes."""\n',
        "def undocumented(): ...\n",
    ],
)
def test_leaves_other_docstrings_alone(text: str) -> None:
    assert list(lint_docstrings.check("training/a.py", ast.parse(text))) == []
    assert list(lint_docstrings.check("tests/test_a.py", ast.parse('"""Of all of them."""\n'))) == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    sources = {
        "api/a.py": "class Range:\n    class Row: ...\n",
        "cluster/a.py": "class _Range: ...\nclass Row: ...\n",
        "db/a.py": "class Range: ...\n",
        "examples/a.py": "class Range: ...\n",
        "tests/test_a.py": "class Range: ...\n",
        "dashboard/a.ts": "class Range {}\n",
    }
    assert [str(finding) for finding in repeated_class_names(sources)] == [
        "cluster/a.py:2: api/a.py:2 is a class Row too: give each a name of its own",
        "db/a.py:1: api/a.py:1 is a class Range too: give each a name of its own",
    ]
