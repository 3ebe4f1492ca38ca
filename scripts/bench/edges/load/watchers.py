"""Many watchers of one job's metrics in a process of their own: how old each frame is when it arrives.

    python -m scripts.bench.edges.load.watchers URL KEY JOB COUNT SECONDS     prints Seen as JSON

Each record carries the time at which it was sent in its `time`; both processes share this machine's clock.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

OPEN_SECONDS = 60.0
AT_ONCE = 20


class Seen(msgspec.Struct):
    watchers: int
    frames: list[int]  # how many each watcher got
    delays_ms: list[float]
    lost: int  # gaps and steps that never came
    closed: int


class _Data(msgspec.Struct):
    step: int = 0
    time: float = 0.0


class _Frame(msgspec.Struct):
    seq: int
    type: str
    data: _Data


_decoder = msgspec.json.Decoder(_Frame)


async def watch(url: str, key: str, gate: asyncio.Semaphore, seen: Seen, ready: asyncio.Semaphore) -> None:
    count, last = 0, None
    try:
        async with gate:
            socket = await connect(
                url, additional_headers={"Authorization": f"Bearer {key}"}, open_timeout=OPEN_SECONDS, ping_interval=None
            )
        ready.release()
        async for text in socket:
            frame = _decoder.decode(text)
            seen.lost += frame.type == "gap"
            if frame.type == "record":
                seen.delays_ms.append((time.time() - frame.data.time) * 1000)
                seen.lost += 0 if last is None else frame.data.step - last - 1
                count, last = count + 1, frame.data.step
        seen.closed += 1
    except (OSError, ConnectionClosed):
        seen.closed += 1
    finally:
        seen.frames.append(count)


async def run(url: str, key: str, job_id: str, count: int, seconds: float) -> Seen:
    seen = Seen(watchers=count, frames=[], delays_ms=[], lost=0, closed=0)
    gate, ready = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(0)
    address = f"{url.replace('http', 'ws', 1)}/api/v1/metrics/stream/{job_id}"
    tasks = [asyncio.create_task(watch(address, key, gate, seen, ready)) for _ in range(count)]
    for _ in range(count):
        await asyncio.wait_for(ready.acquire(), OPEN_SECONDS)
    print("ready", flush=True)
    seen.delays_ms.clear()
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


def main() -> None:
    url, key, job_id, count, seconds = sys.argv[1:]
    print(msgspec.json.encode(uvloop.run(run(url, key, job_id, int(count), float(seconds)))).decode(), flush=True)


if __name__ == "__main__":
    main()
