import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { LogEntry } from "@/lib/types";
import { logLine } from "@/testing/fixtures";
import { LogLines } from "./components/LogLines";

const lines = (...seqs: number[]) => seqs.map((seq) => logLine(seq));

function Viewer({ all }: { all: readonly LogEntry[] }) {
  const [follow, setFollow] = useState(true);
  const none = () => Promise.resolve();
  return (
    <MantineProvider>
      <output>{follow ? "following" : "not following"}</output>
      <LogLines
        lines={all}
        follow={follow}
        atEnd
        wrap
        onFollow={setFollow}
        onLink={() => {}}
        onTop={none}
        onEnd={none}
      />
    </MantineProvider>
  );
}

describe("following", () => {
  beforeEach(() => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
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

describe("reading", () => {
  const range = (from: number, to: number) => lines(...Array.from({ length: to - from }, (_, index) => from + index));

  const none = () => Promise.resolve();
  interface ReaderProps {
    all: readonly LogEntry[];
    atEnd?: boolean;
    linked?: number;
    onTop?(): Promise<void>;
    onEnd?(): Promise<void>;
  }

  function Reader({ all, atEnd = true, linked, onTop = none, onEnd = none }: ReaderProps) {
    const more = { onFollow: none, onLink: none, onTop, onEnd };
    return (
      <MantineProvider>
        <LogLines lines={all} linked={linked} follow={false} atEnd={atEnd} wrap {...more} />
      </MantineProvider>
    );
  }

  it("leaves the line that is read where it is when older ones come in above it", () => {
    const { rerender } = render(<Reader all={range(1000, 1500)} />);
    const log = screen.getByRole("log");
    log.scrollTop = 10;
    rerender(<Reader all={range(500, 1500)} />);
    expect(log.scrollTop).toBe(10 + 500 * 20);
    rerender(<Reader all={range(500, 1501)} />);
    expect(log.scrollTop).toBe(10 + 500 * 20);
    rerender(<Reader all={range(900, 1501)} />);
    expect(log.scrollTop).toBe(10 + 100 * 20);
  });

  it("fetches later lines before the reader comes to the last one, up to the end of the log", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "scrollHeight", "get").mockReturnValue(10_000);
    vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(20); // of a line: without it, all are in view
    const onEnd = vi.fn(() => Promise.resolve());
    const { rerender } = render(<Reader all={range(1000, 1500)} atEnd={false} onEnd={onEnd} />);
    const log = screen.getByRole("log");
    log.scrollTop = 8000;
    fireEvent.scroll(log);
    expect(onEnd).not.toHaveBeenCalled();
    log.scrollTop = 9000;
    fireEvent.scroll(log);
    expect(onEnd).toHaveBeenCalledOnce();
    rerender(<Reader all={range(1000, 1500)} onEnd={onEnd} />);
    fireEvent.scroll(log);
    expect(onEnd).toHaveBeenCalledOnce();
  });

  it("fetches older lines where those that are loaded do not fill the screen", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "scrollHeight", "get").mockReturnValue(400);
    const onTop = vi.fn(() => Promise.resolve());
    render(<Reader all={range(1000, 1003)} onTop={onTop} />);
    expect(onTop).toHaveBeenCalledOnce();
  });

  it("has one stop for the Tab key among its lines, the linked one", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
    render(<Reader all={range(1, 20)} linked={3} />);
    const stops = screen.getAllByRole("button").filter((button) => button.tabIndex === 0);
    expect(stops.map((stop) => stop.getAttribute("aria-label"))).toEqual([expect.stringContaining("link to line 3")]);
  });

  it("shows the day of lines that are not of today", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
    const noon = new Date(2026, 10, 25, 12);
    vi.useFakeTimers({ now: noon, toFake: ["Date"] }); // else the day could end meanwhile
    const at = (time: Date) => [logLine(1, { time: time.toISOString() })];
    const { rerender } = render(<Reader all={at(new Date(2020, 2, 4, 12, 30))} />);
    expect(screen.getByText("2020-03-04 12:30:00")).toBeInTheDocument();
    rerender(<Reader all={at(noon)} />);
    expect(screen.getByText("12:00:00")).toBeInTheDocument();
  });

  it("fetches older lines before the reader comes to the first one", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
    vi.spyOn(HTMLElement.prototype, "scrollHeight", "get").mockReturnValue(10_000);
    vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(20); // of a line: without it, all are in view
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
