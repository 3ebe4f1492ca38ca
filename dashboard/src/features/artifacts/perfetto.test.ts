import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { openInPerfetto, PERFETTO, PING_MS } from "./perfetto";

const trace = new ArrayBuffer(3);
let opened: { postMessage: ReturnType<typeof vi.fn>; closed: boolean };

beforeEach(() => {
  vi.useFakeTimers();
  opened = { postMessage: vi.fn(), closed: false };
  vi.spyOn(window, "open").mockReturnValue(opened as unknown as Window);
});
afterEach(() => {
  vi.useRealTimers();
});

function answer(from: { origin?: string; source?: unknown; data?: unknown } = {}) {
  const event = new MessageEvent("message", { origin: from.origin ?? PERFETTO, data: from.data ?? "PONG" });
  Object.defineProperty(event, "source", { value: "source" in from ? from.source : opened });
  window.dispatchEvent(event);
}

describe("opening a trace in Perfetto", () => {
  it("pings its window until it answers, then hands over the file with its title, to that page alone", async () => {
    const done = openInPerfetto("gpt, rank 0", () => Promise.resolve(trace));
    expect(window.open).toHaveBeenCalledWith(PERFETTO);
    await vi.advanceTimersByTimeAsync(3 * PING_MS);
    expect(opened.postMessage.mock.calls).toEqual(Array(3).fill(["PING", PERFETTO]));
    answer();
    await done;
    expect(opened.postMessage).toHaveBeenLastCalledWith(
      { perfetto: { buffer: trace, title: "gpt, rank 0" } },
      PERFETTO,
    );
    await vi.advanceTimersByTimeAsync(10 * PING_MS);
    expect(opened.postMessage).toHaveBeenCalledTimes(4);
  });

  it("believes no other window, page or message", async () => {
    const done = openInPerfetto("t", () => Promise.resolve(trace), 1_000);
    const refused = expect(done).rejects.toThrow("has not answered within 1 s");
    answer({ origin: "https://evil.example" });
    answer({ source: window });
    answer({ data: "PING" });
    await vi.advanceTimersByTimeAsync(1_100);
    await refused;
    expect(opened.postMessage).not.toHaveBeenCalledWith(
      expect.objectContaining({ perfetto: expect.anything() }),
      PERFETTO,
    );
  });

  it("says that pop-ups are blocked, and loads nothing then", async () => {
    vi.mocked(window.open).mockReturnValue(null);
    const load = vi.fn();
    await expect(openInPerfetto("t", load)).rejects.toThrow("has blocked the new window");
    expect(load).not.toHaveBeenCalled();
  });

  it("stops when its window was closed", async () => {
    const refused = expect(openInPerfetto("t", () => Promise.resolve(trace))).rejects.toThrow("was closed");
    opened.closed = true;
    await vi.advanceTimersByTimeAsync(PING_MS);
    await refused;
  });

  it("passes on why the trace cannot be loaded", async () => {
    const refused = expect(openInPerfetto("t", () => Promise.reject(new Error("gone")))).rejects.toThrow("gone");
    await vi.advanceTimersByTimeAsync(PING_MS);
    answer();
    await refused;
  });
});
