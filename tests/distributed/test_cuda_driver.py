"""The CUDA driver as a shared library of its own, that answers as NVIDIA's does before and after cuInit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from paceline.distributed import cuda_driver

SOURCE = """
static int started = 0;
int cuInit(unsigned int flags) { started = 1; return 0; }
int cuDeviceGetCount(int *count) { if (!started) return 3; *count = 1; return 0; }
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "driver.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "driver.c")], check=True)
    monkeypatch.setattr(cuda_driver, "LIBRARY", str(library))
    return ctypes.CDLL(str(library))


def test_a_driver_that_has_started_is_refused_before_any_rank_is_forked(driver: ctypes.CDLL) -> None:
    cuda_driver.require_cuda_unstarted()  # and asking does not start it
    cuda_driver.require_cuda_unstarted()
    driver.cuInit(0)
    with pytest.raises(cuda_driver.CudaStartedError, match="before it forks ranks"):
        cuda_driver.require_cuda_unstarted()


def test_a_machine_without_a_driver_has_none_that_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-is-not-here.so.1")
    cuda_driver.require_cuda_unstarted()
