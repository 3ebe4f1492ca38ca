"""The program that is sent to a machine: the modules that run there, in one text that needs nothing but a Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

PACKAGE = "paceline.cluster.provisioners.ssh"
#: A module imports those before it alone, and the standard library.
MODULES = ("host_environments", "on_host")

#: Modules are known by their names before they are run: Python imports no package to find one that it knows.
_LOADER = """\
import json, sys, types
for name, text in json.loads({sources!r}):
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
from {package}.on_host import {function}
"""


def call_program(function: str, arguments: Sequence[Any]) -> str:
    """Return the program that calls a function of `on_host` and prints its answer as JSON, on the last line."""
    return f"{_loading(function)}print('\\n' + json.dumps({function}(*json.loads({json.dumps(arguments)!r}))))\n"


def node_program() -> str:
    """Return the program that becomes a node's agent. Its first argument is the folder of the node, the others are options of the agent."""
    return f"{_loading('run_node')}run_node(*sys.argv[1:])\n"


def _loading(function: str) -> str:
    sources = [(f"{PACKAGE}.{name}", files(PACKAGE).joinpath(f"{name}.py").read_text()) for name in MODULES]
    return _LOADER.format(sources=json.dumps(sources), package=PACKAGE, function=function)
