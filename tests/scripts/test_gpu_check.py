"""The code of every row of `scripts/gpu_check.sh` on two CPU ranks, and what the table says where a row cannot run, hangs or breaks."""

from __future__ import annotations

import subprocess
import time

import pytest
import torch

from paceline.monitoring.samples import Gpu, GpuSample
from scripts.gpu_check.machine import CannotCheckError, Machine, find_machine
from scripts.gpu_check.outcome import Outcome, Row, RowFailedError, Seen, line
from scripts.gpu_check.readings import MEBIBYTE, Reading, compare, parse, percent_of_a_core
from scripts.gpu_check.rows import ROWS
from scripts.gpu_check.run import outcome_of, run_row
from scripts.steps import ROOT

MACHINE = Machine("cpu", ranks=2, quick=True)
TIMEOUT_SECONDS = 60
ROW_TIMEOUT_SECONDS = 180
#: Compiling takes a minute, and has tests of its own.
SLOW = {"compile"}
#: One of each way in which a row is checked.
SAMPLE = {"group_of_one", "abort", "exposure", "single", "ddp", "memory_estimate", "telemetry"}
#: What a machine of two CPU ranks has not: the beginning of the reason.
LACKING = {"hsdp": "needs 4", "readings": "this machine has no nvidia-smi", "readings_cost": "NVML finds no GPU"}

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, which tests/gpu checks")


@no_gpu
@pytest.mark.timeout(ROW_TIMEOUT_SECONDS)
@pytest.mark.parametrize(
    "name",
    [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.release) for name in ROWS if name not in SLOW | LACKING.keys()],
)
def test_row_on_cpu(name: str) -> None:
    outcome = outcome_of(name, MACHINE)
    assert outcome.status == "ok" or outcome.text.startswith("not in this version: "), outcome.text


@no_gpu
@pytest.mark.parametrize("name", LACKING)
def test_row_that_says_what_is_lacking(name: str) -> None:
    outcome = run_row(name, ROWS[name], MACHINE)
    assert outcome.status == "skipped"
    assert outcome.text.startswith(LACKING[name])


def test_row_that_takes_too_long_is_ended_and_failed() -> None:
    outcome = run_row("single", ROWS["single"]._replace(seconds=0.1), MACHINE)
    assert (outcome.status, outcome.text) == ("failed", "not done after 0.1 s: ")


def test_row_that_breaks_is_failed_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "single", Row(lambda machine: Seen(str(1 // 0))))
    outcome = outcome_of("single", MACHINE)
    assert (outcome.status, outcome.text) == ("failed", "ZeroDivisionError: integer division or modulo by zero")


@no_gpu
def test_machine_without_gpus_says_why_and_exits_3() -> None:
    done = subprocess.run(["scripts/gpu_check.sh"], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("nothing was checked: ")
    assert "--device cpu" in done.stderr
    with pytest.raises(CannotCheckError):
        find_machine("cuda", quick=True)


def test_line_of_the_table() -> None:
    assert line(Outcome("abort", "skipped", 1.25, "needs 2 GPUs"), 8) == "abort     skipped     1.2 s  needs 2 GPUs"


SMI = "GPU-0, NVIDIA H100 80GB HBM3, 81559, 1024, 41, 120.5\nGPU-1, NVIDIA H100 80GB HBM3, 81559, 0, 40, [N/A]\n"
READINGS = parse(SMI)
GPUS = tuple(Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA H100 80GB HBM3", memory_bytes=81559 * MEBIBYTE) for index in (0, 1))
SAMPLES = tuple(
    GpuSample(
        index=index,
        uuid=f"GPU-{index}",
        memory_total_bytes=81559 * MEBIBYTE,
        memory_used_bytes=used,
        temperature_celsius=42,
        power_watts=power,
    )
    for index, (used, power) in enumerate([(1030 * MEBIBYTE, 150.0), (0, None)])
)


def test_reads_what_nvidia_smi_writes() -> None:
    assert READINGS[0] == Reading("GPU-0", "NVIDIA H100 80GB HBM3", 81559.0 * MEBIBYTE, 1024.0 * MEBIBYTE, 41.0, 120.5)
    assert READINGS[1].power is None
    compare(GPUS, SAMPLES, READINGS)


def test_the_cost_of_readings_is_their_own_time_over_the_seconds_between_them() -> None:
    waited: list[float] = []

    def read() -> None:
        began = time.process_time()
        while time.process_time() - began < 0.01:
            pass

    assert percent_of_a_core(read, 5, waited.append) == pytest.approx(1.0, abs=0.5)
    assert waited == [1.0] * 5


def test_readings_that_differ_are_named() -> None:
    more = [READINGS[0]._replace(used=9e9, power=None), READINGS[1]._replace(uuid="GPU-7")]
    with pytest.raises(RowFailedError) as failed:
        compare(GPUS, SAMPLES, more)
    assert all(word in str(failed.value) for word in ("used memory", "power", "GPU-1 is not in"))
    assert "temperature" not in str(failed.value)
