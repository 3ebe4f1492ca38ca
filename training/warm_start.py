"""A user's Python program in a process that was forked with torch imported: it starts in a tenth of the time of a new interpreter.

The process is made to look like a new interpreter first: `sys.path`, `sys.argv` and `__main__` are the program's, Paceline's own modules are
forgotten, so that what the user's code imports of it is as new, and random numbers differ from rank to rank. Where a file of
the user has the name of a module that is loaded already, only a new interpreter will do (`why_not_warm`).

No torch in here: the process has it, and a test's may not.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import io
import multiprocessing.process
import os
import pkgutil
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from paceline.distributed import env
from paceline.distributed.kept_groups import keep_destroyed_groups
from paceline.location import PACKAGE, ROOT
from paceline.training.spec.clashes import importable, why_yours_wins

INTERRUPTED_EXIT_CODE = 130
#: The spawner's working directory, which `python -m` has put first on its path.
_OF_SPAWNER = sys.path[0] if sys.path[:1] == [os.getcwd()] else None
#: Variables that act as an interpreter or a library starts, by how they begin. OMP_NUM_THREADS is set again for what is loaded.
ACTS_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH", "ATEN_"),
    *("NPY_", "NUMPY_", "SYMPY_", "TQDM_"),  # of what comes with torch
)
#: Python takes the encoding of its text from these when it starts; the others of a locale act when a program asks for them.
_OF_ENCODING = frozenset({"LANG", "LC_ALL", "LC_CTYPE"})
_ACTS_LATER = frozenset({"OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "TORCHELASTIC_RUN_ID"})


def acts_at_start(variable: str) -> bool:
    """Return whether a variable has no effect on an interpreter that has imported torch already."""
    return variable in _OF_ENCODING or (variable.startswith(ACTS_AT_START) and variable not in _ACTS_LATER)


@dataclass(frozen=True)
class UserProgram:
    """A Python program as a command line names it: `python -u [-m] target arguments`."""

    target: str
    arguments: tuple[str, ...]
    is_module: bool

    @classmethod
    def parse(cls, command: Sequence[str]) -> UserProgram:
        """Parse a command line. Raises ValueError for one of another form."""
        match tuple(command):
            case (_, "-u", "-m", str(module), *arguments):
                return cls(module, tuple(arguments), is_module=True)
            case (_, "-u", str(path), *arguments):
                return cls(path, tuple(arguments), is_module=False)
        raise ValueError(f"not the command line of a Python program: {' '.join(command)}")

    @property
    def is_on_path(self) -> bool:
        """Whether it is a folder or a zip file, whose `__main__` is run."""
        return not self.is_module and pkgutil.get_importer(self.target) is not None

    @property
    def first_on_path(self) -> str:
        """First entry of `sys.path`, as Python sets it for this program."""
        if self.is_on_path:
            return os.path.join(os.getcwd(), self.target)
        return os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.target))


def exit_code_of(error: BaseException) -> int:
    """The interpreter's own: that of sys.exit, whose None is 0 and whose texts are 1, and 1 for anything else."""
    if not isinstance(error, SystemExit) or not isinstance(error.code, int | None):
        return 1
    return (error.code or 0) & 0xFF


def leave(end: SystemExit) -> int:
    """The exit code of a program that ends so; what it says instead of a number is printed, as the interpreter does."""
    if not isinstance(end.code, int | None):
        print(end.code, file=sys.stderr)
    return exit_code_of(end)


def why_not_warm(program: UserProgram) -> str | None:
    """The module of the user's that a loaded one would hide; None: there is none."""
    loaded = {name.partition(".")[0] for name in sys.modules if not _is_ours(name)}
    for folder in (program.first_on_path, *env.python_path()):
        shadowed = loaded & importable(Path(folder))
        if shadowed:
            return f"{folder} has a {min(shadowed)} of its own"
    return None


def clash_of(command: Sequence[str]) -> str | None:
    """Why a Python program with this command line, started here, would import a `paceline` of the user's; None where it would not."""
    with contextlib.suppress(ValueError):
        first = UserProgram.parse(command).first_on_path
        return None if _is_checkout(first) else why_yours_wins(first)
    return None


def run(program: UserProgram, report: Callable[[BaseException], None]) -> int:
    """Run the program to its end: its threads, its exit functions and the files that it has left open. Returns the exit code. `report` is called with
    what it raised."""
    _become_new(program)
    code = 0
    try:
        _execute(program)
    except SystemExit as end:
        code = leave(end)
        if isinstance(end.code, str):
            report(end.with_traceback(_users_part(end.__traceback__)))
    except KeyboardInterrupt as error:
        code = INTERRUPTED_EXIT_CODE
        _report_safely(error, report)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises ends it
        code = 1
        _report_safely(error, report)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons, as the interpreter's own end does
    with contextlib.suppress(SystemExit):
        atexit._run_exitfuncs()
    _flush_open_files()
    return code


def _flush_open_files() -> None:
    """Write what files that were left open still hold, as the end of an interpreter does: text first, then the bytes that it has become."""
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    left = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    for each in sorted(left, key=lambda each: not isinstance(each, io.TextIOWrapper)):
        with contextlib.suppress(Exception):  # closed, on a full disk, or to somebody who has gone
            each.flush()


# -- a new interpreter


def _become_new(program: UserProgram) -> None:
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    keep_destroyed_groups()
    leave_checkout()
    installed = [entry for entry in sys.path if entry and entry not in (*env.python_path(), _OF_SPAWNER)]
    sys.path[:] = [program.first_on_path, *env.python_path(), *installed]
    if not is_installed():
        sys.path.append(str(ROOT))  # for `import paceline`, behind everything else
    sys.argv[:] = [program.target, *program.arguments]
    vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
    importlib.invalidate_caches()
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]  # where children by spawn look for a relative __main__
    tempfile.tempdir = None  # TMPDIR may be another one
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if env.wants_fault_handler():
        faulthandler.enable()
    _start_random_numbers()
    _set_threads()


def _start_random_numbers() -> None:
    """Other ones in each process, as after an import. Python's own see to it themselves."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _set_threads() -> None:
    """What OMP_NUM_THREADS says, or every core that this process may use, for libraries that have looked already."""
    threads = env.intra_op_threads(default=len(os.sched_getaffinity(0)))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    if "numpy" in sys.modules:
        threadpoolctl = importlib.import_module("threadpoolctl")
        threadpoolctl.threadpool_limits(limits=threads, user_api="blas")


def _is_ours(module: str) -> bool:
    return module == "__mp_main__" or module.partition(".")[0] == PACKAGE.name


def leave_checkout() -> None:
    """Remove the checkout of Paceline from the path: it has folders such as `training` and `tests`, as users have.

    Later imports of Paceline are found through its package, wherever that came from.
    """
    sys.path[:] = [entry for entry in sys.path if not _is_checkout(entry or os.getcwd())]


def _is_checkout(entry: str) -> bool:
    return Path(entry).resolve() == ROOT and ROOT.name != "site-packages"


def is_installed() -> bool:
    """Return whether `import paceline` works without `ROOT` on the path, as it does after an installation."""
    elsewhere = [entry for entry in sys.path if entry and not _is_checkout(entry)]
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    return PathFinder.find_spec("paceline", elsewhere) is not None or any(finder.find_spec("paceline", None) for finder in finders)


# -- the program


def _execute(program: UserProgram) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    if program.is_module:
        runpy._run_module_as_main(program.target)  # type: ignore[attr-defined]  # what `python -m` itself calls
        return
    if program.is_on_path:
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]  # what `python FOLDER` itself calls
        return
    path = os.path.abspath(program.target)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    with io.open_code(path) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _report_safely(error: BaseException, report: Callable[[BaseException], None]) -> None:
    """First the report, then the program's own hook, which may end the process."""
    report(error.with_traceback(_users_part(error.__traceback__)))
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - the hook is the user's
        sys.__excepthook__(type(error), error, error.__traceback__)


def _users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Without the frames of this file and of runpy, which come first."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    while traceback is not None and traceback.tb_frame.f_code.co_filename in ours:
        traceback = traceback.tb_next
    return traceback
