"""What a forked child becomes as a rank: how it is scheduled, and what its programs find where Paceline runs from a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from paceline.location import PACKAGE, ROOT
from tests.cluster.agent.spawners import Node
from tests.training.test_warm_start import ROOMS

#: Becomes the program as a rank does, without what an editable installation has added to this interpreter.
BECOMES = """
import sys
from pathlib import Path
from paceline.cluster.agent.spawner import rank_process
sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__name__", "") != "_EditableFinder"]
print(rank_process._execute((sys.executable, "-S", sys.argv[1]), Path(sys.argv[2])))
"""
#: Run without site-packages, which have the packages that a checkout would hide.
LOOKS = f"""
import importlib.util, json
found = [name for name in {ROOMS!r} if importlib.util.find_spec(name)]
print(json.dumps([importlib.util.find_spec("paceline").origin, found]))
"""


def test_a_checkout_hides_no_installed_package_from_a_new_interpreter(tmp_path: Path) -> None:
    """`distributed`, which is dask's, was Paceline's."""
    (tmp_path / "looks.py").write_text(LOOKS)
    (tmp_path / "rank").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for _ in range(2):  # the second time the link is there
        command = [sys.executable, "-c", BECOMES, str(tmp_path / "looks.py"), str(tmp_path / "rank")]
        told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
        origin, found = json.loads(told)
        assert (Path(origin).resolve(), found) == (PACKAGE / "__init__.py", [])


@pytest.mark.parametrize(("device", "policy"), [("cpu", os.SCHED_BATCH), ("cuda", os.SCHED_OTHER)])
def test_ranks_on_cpus_and_what_they_start_take_the_processor_from_no_rank_in_the_middle_of_its_turn(
    tmp_path: Path, device: str, policy: int
) -> None:
    """As ordinary processes two ranks on two cores made a fifth to a third fewer steps. A thread that serves a card is not to wait for one that loads data."""
    node = Node(tmp_path / "node")
    try:
        look = "import os, subprocess, sys; print(os.sched_getscheduler(0), flush=True)"
        program = (sys.executable, "-c", f"{look}; subprocess.run([sys.executable, '-c', {look!r}])")
        order = node.order().order
        order = msgspec.structs.replace(order, world=msgspec.structs.replace(order.world, device=device))
        spawn = node.spawn(order, program, tmp_path, fresh=True)
        assert node.run(spawn).exit_code == 0
        assert node.output(spawn).split() == [str(policy)] * 2
    finally:
        node.end()
