import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { LogEntry } from "@/lib/types";
import { logLine } from "@/testing/fixtures";
import { merge, MOST_LINES, passes } from "./buffer";
import { LogLines } from "./components/LogLines";

const lines = (...seqs: number[]) => seqs.map((seq) => logLine(seq));
const seqs = (some: readonly LogEntry[]) => some.map(({ seq }) => seq);

describe("the buffer", () => {
  it("keeps lines in order, each once, whichever side they come from", () => {
    expect(seqs(merge(lines(5, 6), lines(7)))).toEqual([5, 6, 7]);
    expect(seqs(merge(lines(5, 6), lines(3, 4, 5)))).toEqual([3, 4, 5, 6]);
    expect(seqs(merge(lines(5, 6), lines(6)))).toEqual([5, 6]);
  });

  it("is bounded, the oldest leaving first", () => {
    const many = Array.from({ length: MOST_LINES }, (_, seq) => logLine(seq));
    expect(merge(many, lines(MOST_LINES))).toHaveLength(MOST_LINES);
    expect(merge(many, lines(MOST_LINES))[0]!.seq).toBe(1);
  });

  it("filters live lines as the server does", () => {
    const line = logLine(1, { rank: 2, level: "error", text: "CUDA out of Memory" });
    expect(
      [{}, { rank: 2 }, { level: "error" as const }, { q: "memory" }].map((filter) => passes(line, filter)),
    ).toEqual([true, true, true, true]);
    expect([{ rank: 0 }, { level: "info" as const }, { q: "disk" }].map((filter) => passes(line, filter))).toEqual([
      false,
      false,
      false,
    ]);
  });
});

function Viewer({ all }: { all: readonly LogEntry[] }) {
  const [follow, setFollow] = useState(true);
  const none = () => Promise.resolve();
  return (
    <MantineProvider>
      <output>{follow ? "following" : "not following"}</output>
      <LogLines lines={all} follow={follow} onFollow={setFollow} onLink={() => {}} onTop={none} onEnd={none} />
    </MantineProvider>
  );
}

describe("following", () => {
  beforeEach(() => {
    vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "offsetWidth", "get").mockReturnValue(800);
  });

  it("ends when the reader scrolls up, then counts new lines, and takes up again on request", () => {
    const { rerender } = render(<Viewer all={lines(1, 2)} />);
    fireEvent.wheel(screen.getByRole("log"), { deltaY: -40 });
    expect(screen.getByText("not following")).toBeVisible();
    expect(screen.queryByRole("button", { name: /new line/ })).toBeNull();
    rerender(<Viewer all={lines(1, 2, 3, 4)} />);
    fireEvent.click(screen.getByRole("button", { name: "2 new lines" }));
    expect(screen.getByText("following")).toBeVisible();
    expect(screen.queryByRole("button", { name: /new line/ })).toBeNull();
  });

  it("is left by the keyboard too", () => {
    render(<Viewer all={lines(1, 2)} />);
    fireEvent.keyDown(screen.getByRole("log"), { key: "PageUp" });
    expect(screen.getByText("not following")).toBeVisible();
  });
});

describe("reading backwards", () => {
  const range = (from: number, to: number) => lines(...Array.from({ length: to - from }, (_, index) => from + index));

  function Reader({ all, onTop }: { all: readonly LogEntry[]; onTop(): Promise<void> }) {
    const none = () => Promise.resolve();
    return (
      <MantineProvider>
        <LogLines lines={all} follow={false} onFollow={none} onLink={none} onTop={onTop} onEnd={none} />
      </MantineProvider>
    );
  }

  it("leaves the line that is read where it is when older ones come in above it", () => {
    const none = () => Promise.resolve();
    const { rerender } = render(<Reader all={range(1000, 1500)} onTop={none} />);
    const log = screen.getByRole("log");
    log.scrollTop = 10;
    rerender(<Reader all={range(500, 1500)} onTop={none} />);
    expect(log.scrollTop).toBe(10 + 500 * 20);
    rerender(<Reader all={range(500, 1501)} onTop={none} />);
    expect(log.scrollTop).toBe(10 + 500 * 20);
  });

  it("fetches older lines before the reader comes to the first one", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "scrollHeight", "get").mockReturnValue(10_000);
    const onTop = vi.fn(() => Promise.resolve());
    render(<Reader all={range(1000, 1500)} onTop={onTop} />);
    const log = screen.getByRole("log");
    log.scrollTop = 2000;
    fireEvent.scroll(log);
    expect(onTop).not.toHaveBeenCalled();
    log.scrollTop = 700;
    fireEvent.scroll(log);
    expect(onTop).toHaveBeenCalledOnce();
  });
});
