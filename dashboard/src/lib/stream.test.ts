import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket } from "@/testing/fakeSocket";
import { FIRST_RETRY_MS, LONGEST_RETRY_MS, retryDelay, SILENCE_LIMIT_MS, Stream, type StreamStatus } from "./stream";
import type { StreamFrame } from "./types";

function open(after: number | null = 10) {
  const frames: StreamFrame[] = [];
  const statuses: StreamStatus[] = [];
  const missed = vi.fn();
  const stream = new Stream("/api/v1/metrics/stream/job1", after, {
    onFrame: (frame) => frames.push(frame),
    onMissed: missed,
    onStatus: (status) => statuses.push(status),
  });
  return { stream, frames, statuses, missed, socket: () => FakeSocket.all.at(-1)! };
}

describe("a stream", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  it("resumes after the newest frame it has delivered", () => {
    const { socket, frames, statuses } = open(10);
    expect(socket().after).toBe("10");
    socket().hello(10);
    socket().send({ type: "record", seq: 11 });
    socket().send({ type: "record", seq: 12 });
    socket().drop();
    vi.advanceTimersByTime(LONGEST_RETRY_MS * 1.25);
    expect(FakeSocket.all).toHaveLength(2);
    expect(socket().after).toBe("12");
    socket().hello(12);
    expect(frames.map(({ seq }) => seq)).toEqual([11, 12]);
    expect(statuses).toEqual(["connecting", "live", "waiting", "waiting", "live"]);
  });

  it("delivers a replayed frame once", () => {
    const { socket, frames } = open(10);
    for (const seq of [10, 11, 11, 12]) socket().send({ type: "record", seq });
    expect(frames.map(({ seq }) => seq)).toEqual([11, 12]);
  });

  it("takes its position from hello when it has none, and asks for what came before it", () => {
    const { socket, missed } = open(null);
    expect(socket().after).toBeNull();
    expect(missed).not.toHaveBeenCalled();
    socket().hello(41);
    expect(missed).toHaveBeenCalledTimes(1);
    socket().drop();
    vi.advanceTimersByTime(LONGEST_RETRY_MS * 1.25);
    expect(socket().after).toBe("41");
    socket().hello(50);
    expect(missed).toHaveBeenCalledTimes(1);
  });

  it("asks for a snapshot after a gap and continues behind it; after a reset it starts over", () => {
    const { socket, missed } = open(10);
    socket().send({ type: "gap", seq: 50, data: { from: 11, to: 50 } });
    expect(missed).toHaveBeenCalledTimes(1);
    socket().drop();
    vi.advanceTimersByTime(LONGEST_RETRY_MS * 1.25);
    expect(socket().after).toBe("50");
    socket().send({ type: "reset" });
    expect(missed).toHaveBeenCalledTimes(2);
  });

  it("treats a silent peer as gone, but pings keep it alive", () => {
    const { socket, statuses } = open();
    socket().hello();
    vi.advanceTimersByTime(SILENCE_LIMIT_MS - 1);
    socket().send({ type: "ping" });
    vi.advanceTimersByTime(SILENCE_LIMIT_MS - 1);
    expect(statuses.at(-1)).toBe("live");
    vi.advanceTimersByTime(1);
    expect(statuses.at(-1)).toBe("waiting");
  });

  it("does not come back after close", () => {
    const { stream, socket } = open();
    const last = socket();
    stream.close();
    last.drop();
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.all).toHaveLength(1);
    expect(last.closed).toBe(true);
  });

  it("backs off by doubling, with jitter, up to a limit", () => {
    expect(retryDelay(0, 0.5)).toBe(FIRST_RETRY_MS);
    expect(retryDelay(1, 0.5)).toBe(FIRST_RETRY_MS * 2);
    expect(retryDelay(99, 0.5)).toBe(LONGEST_RETRY_MS);
    expect(retryDelay(0, 0)).toBeLessThan(retryDelay(0, 1));
  });
});
