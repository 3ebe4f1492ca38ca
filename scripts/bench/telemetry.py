"""What reading a node and eight cards once a second costs its agent: `telemetry_cpu_percent`, of one core.

The agent's own parts, in a process of their own: NVML through the real binding and the tests' small libnvidia-ml.so.1, psutil, the spool on disk, and
uploads over HTTP. Its driver answers from memory, so a real driver's own time is not in the figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import msgspec

from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.reading_recorder import ReadingRecorder
from paceline.cluster.agent.upload.delivery import KEPT_CONNECTIONS
from paceline.cluster.agent.upload.readings_spool import ReadingsSpool
from paceline.cluster.agent.upload.readings_uploader import ReadingsUploader
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.monitoring.gpu import open_gpus
from paceline.monitoring.host import HostSampler
from paceline.monitoring.points import Upload, UploadReply
from scripts.bench.figures import Figure, run, summarize
from scripts.steps import ROOT

CARDS = 8
ROUNDS, ROUND_SECONDS = 4, 10.0
LIMIT_PERCENT = 0.5
NVML = ROOT / "tests" / "monitoring" / "fake_nvml" / "nvml.c"
CARD = {
    "memory_total": 85_899_345_920,
    "memory_used": 71_000_000_000,
    "memory_reserved": 500_000_000,
    "utilization": 97,
    "temperature": 61,
    "power_milliwatts": 350_500,
    "power_limit_milliwatts": 700_000,
    "sm_clock": 1_980,
    "memory_clock": 2_619,
    "ecc_uncorrected": 0,
    "ecc_corrected": 0,
    "throttle": "0x4",
    "pcie_tx_bytes": 1_000,
    "pcie_rx_bytes": 1_000,
    "nvlink_tx_kib": 1_000,
    "nvlink_rx_kib": 1_000,
}


class Coordinator(BaseHTTPRequestHandler):
    """A coordinator that acknowledges every upload."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        upload = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])), type=Upload)
        held = upload.readings.records[-1].seq if upload.readings else None
        body = msgspec.json.encode(UploadReply(acknowledged=[], readings=held))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing of each request."""


def measure() -> list[Figure]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Coordinator)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        library, state = Path(folder) / "libnvidia-ml.so.1", Path(folder) / "state"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(NVML)], check=True)
        state.write_text(card_file())
        environment = os.environ | {"FAKE_NVML_STATE": str(state), "LD_LIBRARY_PATH": folder}
        url = f"http://127.0.0.1:{server.server_port}"
        agent = [sys.executable, "-m", "scripts.bench.telemetry", "--agent", url, folder]
        done = subprocess.run(agent, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    server.shutdown()
    with_driver, without = json.loads(done.stdout)
    return [
        summarize("telemetry_cpu_percent", "%", with_driver, f"of one core, {CARDS} cards and the host each second; goal: {LIMIT_PERCENT}"),
        summarize("telemetry_without_driver", "%", without, "the same without the calls into the stand-in of the driver"),
    ]


def card_file() -> str:
    """The state of the stand-in for the driver."""
    lines = [f"{card}.{name} {value}" for card in range(CARDS) for name, value in CARD.items()]
    names = [f"{card}.name NVIDIA Test 80GB\n{card}.uuid GPU-{card}" for card in range(CARDS)]
    return "\n".join([f"gpus {CARDS}", *names, *lines, ""])


async def agent(url: str, folder: Path) -> None:
    """Print what each round took of one core, as two lists: all of it, and what is left without the driver's calls."""
    gpus = open_gpus()
    in_driver = 0.0
    sample = gpus.sample

    def timed() -> object:
        nonlocal in_driver
        began = time.thread_time()
        found = sample()
        in_driver += time.thread_time() - began
        return found

    gpus.sample = timed  # type: ignore[method-assign, assignment]
    vitals = RankHeartbeats(HostSampler(folder, time.monotonic()), gpus, None)
    spool = ReadingsSpool(folder)
    whole: list[float] = []
    rest: list[float] = []
    async with httpx.AsyncClient(base_url=url, limits=KEPT_CONNECTIONS) as http:
        uploader = ReadingsUploader(http, spool)
        recorder = ReadingRecorder(vitals.take, spool, uploader.nudge, Isolation())
        tasks = [asyncio.create_task(recorder.run()), asyncio.create_task(uploader.run())]
        for _ in range(ROUNDS):
            cpu, driver, began = time.process_time(), in_driver, time.monotonic()
            await asyncio.sleep(ROUND_SECONDS)
            seconds = time.monotonic() - began
            whole.append((time.process_time() - cpu) / seconds * 100)
            rest.append((time.process_time() - cpu - in_driver + driver) / seconds * 100)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps([whole, rest]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agent"]:
        asyncio.run(agent(sys.argv[2], Path(sys.argv[3])))
    else:
        run(measure, __doc__)
