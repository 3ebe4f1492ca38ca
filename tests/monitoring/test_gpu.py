"""The GPU sampler through the real nvidia-ml-py, against a small libnvidia-ml.so.1 built from C.

The binding loads the library when it is first used, so each test is a fresh interpreter with the library on its path.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from paceline.monitoring.samples import Gpu, GpuSample

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "fake_nvml" / "nvml.c"
TIMEOUT_SECONDS = 60

READ = """
import msgspec, sys
from paceline.monitoring.gpu import NoGpuError, open_gpus
try:
    sampler = open_gpus()
except NoGpuError as error:
    print(msgspec.json.encode({"error": str(error)}).decode())
    sys.exit()
first = sampler.sample()
if len(sys.argv) > 1:
    open(sys.argv[1], "a").write(sys.argv[2])
samples = [first, sampler.sample()]
seen = {"gpus": sampler.gpus, "unread": sampler.unread, "versions": sampler.versions, "samples": samples}
print(msgspec.json.encode(seen).decode())
sampler.close()
"""

FULL = """gpus 2
0.name NVIDIA Test 80GB
0.uuid GPU-0
0.memory_total 85899345920
0.memory_used 1073741824
0.memory_reserved 500000000
0.utilization 97
0.temperature 61
0.power_milliwatts 350500
0.power_limit_milliwatts 700000
0.sm_clock 1980
0.memory_clock 2619
0.ecc_uncorrected 2
0.ecc_corrected 7
0.pcie_tx_kbps 250
0.pcie_rx_kbps 500
0.throttle 0x44
0.mig 1
0.processes 4242:1000000 4343:2000000
1.name NVIDIA Test Small
1.uuid GPU-1
1.memory_total 4294967296
1.memory_used 0
"""


class Reading(msgspec.Struct):
    gpus: list[Gpu] = []
    unread: str | None = None
    versions: dict[str, str] = {}
    samples: list[list[GpuSample]] = []
    error: str | None = None


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
    return folder


def read(state: str, folder: Path, library: Path, then: str = "") -> Reading:
    """What a fresh interpreter sees; `then` is appended to the state between the two samples."""
    path = folder / "state"
    path.write_text(state)
    environment = os.environ | {"FAKE_NVML_STATE": str(path), "LD_LIBRARY_PATH": str(library)}
    command = [sys.executable, "-c", READ, *([str(path), then] if then else [])]
    output = subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=TIMEOUT_SECONDS, stdout=subprocess.PIPE)
    return msgspec.json.decode(output.stdout, type=Reading)


def test_reads_everything_a_card_tells(library: Path, tmp_path: Path) -> None:
    reading = read(FULL, tmp_path, library)
    assert reading.gpus[0] == Gpu(index=0, uuid="GPU-0", name="NVIDIA Test 80GB", memory_bytes=85899345920, mig=True)
    assert reading.gpus[1].mig is False  # its driver knows of no such mode
    assert reading.versions == {"driver": "580.65.06", "cuda": "13.1"}
    assert reading.samples[0][0] == GpuSample(
        index=0,
        uuid="GPU-0",
        utilization_percent=97,
        memory_used_bytes=1073741824,
        memory_total_bytes=85899345920,
        temperature_celsius=61,
        power_watts=350.5,
        power_limit_watts=700,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        ecc_corrected=7,
        ecc_uncorrected=2,
        pcie_sent_bytes_per_second=250_000,
        pcie_received_bytes_per_second=500_000,
        throttle_reasons=("software_power_cap", "hardware_thermal_slowdown"),
        processes={4242: 1000000, 4343: 2000000},
    )


def test_what_a_card_does_not_tell_is_none_and_not_zero(library: Path, tmp_path: Path) -> None:
    sample = read(FULL, tmp_path, library).samples[0][1]
    assert sample == GpuSample(index=1, uuid="GPU-1", memory_used_bytes=0, memory_total_bytes=4294967296)


def test_traffic_is_the_difference_of_counters(library: Path, tmp_path: Path) -> None:
    counters = "0.pcie_tx_bytes 1000\n0.nvlink_tx_kib 10\n"
    cards = "gpus 1\n0.name card\n0.uuid GPU-0\n0.memory_total 1\n0.memory_used 0\n"
    first, second = (samples[0] for samples in read(cards + counters, tmp_path, library).samples)
    assert first.pcie_sent_bytes_per_second is None  # nothing to compare with yet
    assert second.pcie_sent_bytes_per_second == second.nvlink_sent_bytes_per_second == 0
    assert second.pcie_received_bytes_per_second is None


def test_a_lost_card_says_so_and_the_others_are_read_on(library: Path, tmp_path: Path) -> None:
    before, after = read(FULL, tmp_path, library, then="1.lost 1\n").samples
    assert before[1].error is None
    assert after[1] == GpuSample(index=1, uuid="GPU-1", error="GPU is lost")
    assert after[0].utilization_percent == 97


def test_a_card_that_is_lost_from_the_start_leaves_the_others_to_be_read(library: Path, tmp_path: Path) -> None:
    """One GPU off the bus took all of them away from an agent that started."""
    reading = read(FULL + "0.lost 1\n", tmp_path, library)
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-1"]
    assert reading.unread == "GPU 0 cannot be read (GPU is lost)"
    assert [sample.index for sample in reading.samples[0]] == [1]
    lost = read(FULL + "0.lost 1\n1.lost 1\n", tmp_path, library)
    assert lost.error == "NVML: GPU 0 cannot be read (GPU is lost); GPU 1 cannot be read (GPU is lost)"


@pytest.mark.parametrize("state", ["gpus 0\n", "no_driver 1\n"])
def test_a_driver_without_cards_is_no_gpu(library: Path, tmp_path: Path, state: str) -> None:
    assert read(state, tmp_path, library).error == "no GPU"


def test_a_machine_without_nvml_has_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")  # hides the real one, if there is one: it cannot be loaded
    assert read("", tmp_path, library=tmp_path).error == "no GPU"
