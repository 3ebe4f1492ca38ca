"""User programs in a process forked from a real spawner: they find what a new interpreter would show them."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cluster.agent.ranks.launch import keep
from paceline.cluster.agent.spawner_link import ExitStatus
from paceline.location import ROOT
from paceline.training.link import FailureReport, RankOrder, Result
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from paceline.training.warm_start import UserProgram, acts_at_start, exit_code_of, leave
from tests.cluster.agent.conftest import training_job, world
from tests.cluster.agent.spawners import Node

pytestmark = pytest.mark.timeout(120)


#: Folders of a checkout of Paceline, and names that users give to packages of theirs.
ROOMS = ("api", "cli", "cluster", "db", "distributed", "monitoring", "parallelism", "scripts", "tests", "training")
#: One spawner runs them all.
JOBS = itertools.count()


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    output: str
    status: ExitStatus
    failure: FailureReport | None

    @property
    def told(self) -> Any:
        """The JSON of its last line."""
        assert self.output.strip(), "it has printed nothing"
        return json.loads(self.output.strip().splitlines()[-1])


class Programs:
    """Runs programs of a folder on one spawner, each as rank 0 of a job of its own."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.folder = folder
        self._node = node

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    def run(self, *command: str, fresh: bool = False, rank: int = 0, **variables: str) -> Ran:
        place = world(f"job{next(JOBS)}", rank)
        folder = RankFolder(self._node.folder.path, place.job_id, 1, rank)
        script = {"module": command[1]} if command[0] == "-m" else {"path": command[0]}
        spec = training_job() | {"script": script}
        order = RankOrder(spec=StoredSpec(spec), world=place, folder=str(folder.path), agent_socket=str(self._node.folder.agent_socket))
        keep(order)
        spawn = self._node.spawn(order, (sys.executable, "-u", *command), directory=self.folder, fresh=fresh, **variables)
        status = self._node.run(spawn)
        result = msgspec.json.decode(folder.result.read_bytes(), type=Result) if folder.result.exists() else None
        return Ran(folder.output.read_text(), status, result.failure if result else None)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "agent", trainer="paceline.training.main")
    yield node
    node.end()


@pytest.fixture
def programs(tmp_path: Path, node: Node) -> Programs:
    return Programs(tmp_path, node)


LOOKS = """
import json, multiprocessing, os, random, sys, tempfile, torch, numpy
print(json.dumps({
    "argv": sys.argv, "first": sys.path[0], "name": __name__, "file": __file__, "main": sys.modules["__main__"].__file__,
    "threads": torch.get_num_threads(), "temporary": tempfile.gettempdir(),
}))
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_program_sees_what_a_new_interpreter_shows_it(programs: Programs, threads: str) -> None:
    programs.write("lib/__init__.py", "")
    programs.write("look.py", LOOKS)
    own: dict[str, Any] = {"OMP_NUM_THREADS": threads, "TMPDIR": str(programs.folder)}
    warm = programs.run("look.py", "--lr", "1e4", **own)
    fresh = programs.run("look.py", "--lr", "1e4", fresh=True, **own)
    assert warm.told == fresh.told
    assert warm.told["argv"] == ["look.py", "--lr", "1e4"]
    assert warm.told["threads"] == int(threads)


def test_times_are_those_of_its_own_zone(programs: Programs) -> None:
    programs.write(
        "clock.py", "import json, time; print(json.dumps([time.strftime('%H %Z', time.localtime(0)), time.tzname, time.timezone]))"
    )
    warm, fresh = (programs.run("clock.py", fresh=fresh, TZ="JST-9") for fresh in (False, True))
    assert warm.told == fresh.told
    assert warm.told[0] == "09 JST"


def test_a_module_is_found_from_the_working_directory(programs: Programs) -> None:
    programs.write("shop/__init__.py", "")
    programs.write("shop/train.py", LOOKS)
    warm, fresh = (programs.run("-m", "shop.train", "--lr", fresh=fresh) for fresh in (False, True))
    assert warm.told["file"] == str(programs.folder / "shop/train.py")
    assert {**warm.told, "threads": 0} == {**fresh.told, "threads": 0}


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_folder_and_a_zip_file_with_a_main_module_run_as_python_runs_them(programs: Programs, form: str) -> None:
    """`python app` and `python app.pyz` do, and so does torchrun."""
    programs.write("app/__main__.py", f"import beside\n{LOOKS}")
    programs.write("app/beside.py", "")
    target = "app" if form == "folder" else zipapp(programs.folder)
    warm, fresh = (programs.run(target, "--lr", fresh=fresh) for fresh in (False, True))
    assert {**warm.told, "threads": 0} == {**fresh.told, "threads": 0}


def zipapp(folder: Path) -> str:
    with zipfile.ZipFile(folder / "app.pyz", "w") as file:
        for name in ("__main__.py", "beside.py"):
            file.write(folder / "app" / name, name)
    return "app.pyz"


def test_a_script_in_a_subfolder_finds_packages_beside_it_as_a_module_or_by_a_variable(programs: Programs) -> None:
    programs.write("shop/__init__.py", "name = 'mine'")
    programs.write("scripts/train.py", "import json, shop; print(json.dumps(shop.name))")
    assert programs.run("-m", "scripts.train").told == "mine"
    assert programs.run("scripts/train.py", fresh=True, PYTHONPATH=".").told == "mine"
    assert "No module named 'shop'" in programs.run("scripts/train.py").output


def test_random_numbers_that_nobody_seeds_differ_from_rank_to_rank(programs: Programs) -> None:
    source = "import json, numpy, random, torch; print(json.dumps([numpy.random.rand(), random.random(), torch.rand(1).item()]))"
    programs.write("roll.py", source)
    first, second = (programs.run("roll.py", rank=rank).told for rank in (0, 1))
    assert not set(first) & set(second)


def test_packages_of_the_user_win_over_those_of_paceline(programs: Programs) -> None:
    names = ROOMS
    for name in names:
        programs.write(f"{name}/__init__.py", "mine = True")
    programs.write(
        "who.py",
        f"import json\n{''.join(f'import {name}{chr(10)}' for name in names)}print(json.dumps([{', '.join(f'{n}.mine' for n in names)}]))",
    )
    assert programs.run("who.py").told == [True] * len(names)


def test_paceline_can_be_imported_and_comes_last_on_the_path(programs: Programs) -> None:
    programs.write("use.py", "import json, sys, paceline; print(json.dumps([paceline.world().world_size, sys.path]))")
    size, path = programs.run("use.py", WORLD_SIZE="3").told
    assert size == 3
    assert str(ROOT) not in path[:-1]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_paceline_of_the_users_is_told_of_as_the_program_starts(programs: Programs, fresh: bool) -> None:
    """Only the coordinator told of it, where it saw the folder: not of code that was sent along."""
    programs.write("src/paceline.py", "mine = True")
    programs.write("src/use.py", "import json, paceline; print(json.dumps(paceline.mine))")
    ran = programs.run("src/use.py", fresh=fresh)
    assert ran.told is True
    warning = f"WARNING {programs.folder}/src/paceline.py has Paceline's name: the script imports yours"
    assert ran.output.startswith(warning)
    assert warning not in programs.run("src/use.py", fresh=fresh, rank=1).output


def test_a_file_with_the_name_of_a_loaded_module_gets_a_new_interpreter(programs: Programs) -> None:
    programs.write("tqdm.py", "mine = True")
    programs.write("use.py", "import json, sys; early = 'torch' in sys.modules; import tqdm; print(json.dumps([early, tqdm.mine]))")
    assert programs.run("use.py").told == [False, True]


def test_processes_that_it_spawns_find_its_functions(programs: Programs) -> None:
    source = """
    import json, multiprocessing
    def double(number): return 2 * number
    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(json.dumps(pool.map(double, [1, 2])))
    """
    programs.write("pool.py", "\n".join(line[4:] for line in source.splitlines()))
    assert programs.run("pool.py").told == [2, 4]


def test_workers_of_a_dataloader_and_threads_end_with_it(programs: Programs) -> None:
    source = """
    import atexit, json, threading, time, torch
    atexit.register(lambda: print(json.dumps(seen)))
    seen = []
    loader = torch.utils.data.DataLoader(torch.arange(4), num_workers=1)
    seen += [int(part) for part in loader]
    threading.Thread(target=lambda: (time.sleep(0.2), seen.append("thread"))).start()
    """
    programs.write("work.py", "\n".join(line[4:] for line in source.splitlines()))
    ran = programs.run("work.py")
    assert (ran.told, ran.status.exit_code, ran.failure) == ([0, 1, 2, 3, "thread"], 0, None)


LEAVES_FILES_OPEN = """
import csv
table = open("table.csv", "w")
csv.writer(table).writerow(["loss", 0.5])
both = open("both.bin", "w+b")
both.write(b"bytes")
closed = open("closed.txt", "w")
closed.close()

def evaluate():
    notes = open("notes.txt", "w")
    notes.write("as far as this")
    raise RuntimeError("bad")

evaluate()
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_what_it_wrote_to_files_that_it_left_open_is_there(programs: Programs, fresh: bool) -> None:
    programs.write("leave.py", LEAVES_FILES_OPEN)
    assert programs.run("leave.py", fresh=fresh).status.exit_code == 1
    written = {name: (programs.folder / name).read_text() for name in ("table.csv", "both.bin", "notes.txt")}
    assert written == {"table.csv": "loss,0.5\n", "both.bin": "bytes", "notes.txt": "as far as this"}


@pytest.mark.parametrize("stdout", ["None", "open('/dev/full', 'w')", "type('Broken', (), {'flush': lambda self: {}['x']})()"])
def test_a_script_that_takes_its_output_away_ends_well(programs: Programs, stdout: str) -> None:
    programs.write("quiet.py", f"import sys\nsys.stdout = {stdout}\n")
    ran = programs.run("quiet.py")
    assert (ran.status.exit_code, ran.failure) == (0, None)


LAST_LINES = """
import os, socket, sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
child = os.fork()
os.environ.update(RANK=str(int(child == 0)), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
dist.init_process_group("gloo")

def train():
    group = dist.new_group()
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]), process_group=group)
    for _ in range(2):
        model(torch.ones(2, 256)).sum().backward()
    dist.destroy_process_group(group)

sys.setswitchinterval(1000)  # a thread of gloo's that wants the interpreter waits as long as it would behind other processes
for _ in range(30):
    train()
dist.destroy_process_group()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow("a loop that makes and destroys a group again and again")
def test_a_script_that_destroys_its_group_right_after_a_backward_pass_ends(programs: Programs) -> None:
    """One run in ten stood still in the last line of its function; with this switch interval, the third pass of this loop."""
    programs.write("last.py", LAST_LINES)
    ran = programs.run("last.py")
    assert (ran.told, ran.status.exit_code) == (0, 0), ran.output


@pytest.mark.parametrize(
    ("source", "code", "kind", "exception", "message", "where"),
    [
        ("def main():\n    {}['lr']\nmain()\n", 1, "exception", "KeyError", "'lr'", "main in fail.py:2"),
        ("import sys\nsys.exit('no data')\n", 1, "exception", "SystemExit", "no data", "fail.py:2"),
        ("x = bytearray(1 << 60)\n", 1, "out_of_memory", "MemoryError", "out of memory: MemoryError", "fail.py:1"),
        (
            "import time\nraise RuntimeError('gloo/x: Connection closed by peer')",
            1,
            "exception",
            "RuntimeError",
            "gloo/x: Connection closed by peer",
            "fail.py:2",
        ),
        ("class Own(Exception): pass\nraise Own('bad\\x00\\ud800')", 1, "exception", "__main__.Own", "bad", "fail.py:2"),
        ("raise KeyboardInterrupt", 130, "exception", "KeyboardInterrupt", "KeyboardInterrupt", "fail.py:1"),
        ("def broken(:\n", 1, "exception", "SyntaxError", "invalid syntax", ""),
    ],
)
def test_what_it_raises_is_told_with_its_line(
    programs: Programs, source: str, code: int, kind: str, exception: str, message: str, where: str
) -> None:
    programs.write("fail.py", source)
    ran = programs.run("fail.py")
    assert ran.status.exit_code == code
    assert ran.failure is not None
    assert (ran.failure.kind, ran.failure.exception, ran.failure.where) == (kind, exception, where)
    assert ran.failure.message.startswith(message)
    assert "warm_start.py" not in ran.output + ran.failure.traceback
    assert "runpy" not in ran.output + ran.failure.traceback


def test_its_own_hook_for_exceptions_is_called(programs: Programs) -> None:
    programs.write("hook.py", "import sys\nsys.excepthook = lambda *about: print('mine', about[1])\nraise ValueError('bad')")
    ran = programs.run("hook.py")
    assert (ran.output, ran.status.exit_code) == ("mine bad\n", 1)


def test_a_crash_in_native_code_leaves_its_stack(programs: Programs) -> None:
    programs.write("crash.py", "import ctypes\nctypes.string_at(0)\n")
    ran = programs.run("crash.py", PYTHONFAULTHANDLER="1")
    assert ran.status.signal == "SIGSEGV"
    assert 'crash.py", line 2 in <module>' in ran.output


@pytest.mark.parametrize(
    ("variable", "at_start"),
    [
        *(
            (name, True)
            for name in (
                "PYTHONHASHSEED",
                "PYTHONPATH",
                "LD_PRELOAD",
                "TORCH_LOGS",
                "KMP_AFFINITY",
                "TQDM_DISABLE",
                "NPY_DISABLE_CPU_FEATURES",
                "LANG",
                "LC_ALL",
            )
        ),
        *((name, False) for name in ("OMP_NUM_THREADS", "NCCL_DEBUG", "LR", "TORCHELASTIC_RUN_ID", "TZ", "LANGUAGE", "LC_TIME")),
    ],
)
def test_variables_that_act_at_the_start_of_an_interpreter(variable: str, at_start: bool) -> None:
    assert acts_at_start(variable) is at_start


def test_a_command_of_another_form_is_no_python_program() -> None:
    assert UserProgram.parse(("python", "-u", "-m", "a.b", "-c")) == UserProgram("a.b", ("-c",), is_module=True)
    with pytest.raises(ValueError, match="not the command line of a Python program"):
        UserProgram.parse(("bash",))


@pytest.mark.parametrize(
    ("error", "code"),
    [(SystemExit(), 0), (SystemExit(3), 3), (SystemExit(-1), 255), (SystemExit("no data"), 1), (SystemExit([1]), 1), (ValueError("x"), 1)],
)
def test_exit_codes_are_the_interpreters(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_what_is_said_instead_of_a_code_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (leave(SystemExit("no data")), leave(SystemExit(2)), leave(SystemExit(None))) == (1, 2, 0)
    assert capsys.readouterr().err == "no data\n"
