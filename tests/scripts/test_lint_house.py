"""The house lint finds what it is for, and only that."""

from __future__ import annotations

import pytest

from scripts.lint_house import MAX_FILE_LINES, MAX_FUNCTION_LINES, check_file

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
