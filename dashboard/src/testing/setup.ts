import "@testing-library/jest-dom/vitest";
import { cleanup, configure, getConfig } from "@testing-library/react";
import { afterEach, beforeEach, expect, vi, type MockInstance } from "vitest";
import { FakeSocket } from "./fakeSocket";

// A deadline, not a pause: generous, since a loaded machine draws a page slowly, and a page's modules are compiled at their first use.
const ASYNC_TIMEOUT_MS = 25_000;
const { getElementError } = getConfig();
configure({
  asyncUtilTimeout: ASYNC_TIMEOUT_MS,
  // Each look of a wait that finds nothing yet would print the whole page for a message that nobody reads: a fifth of the time of these tests.
  getElementError: (message, container) =>
    isWaiting() ? new Error(message ?? "not found") : getElementError(message, container),
});

function isWaiting() {
  return (getConfig() as { _disableExpensiveErrorDiagnostics?: boolean })._disableExpensiveErrorDiagnostics;
}

// jsdom has no canvas: a chart is there, but draws nothing. In a test of its own, the real one would fail a frame later.
vi.mock("uplot", () => ({
  default: class {
    over = document.createElement("div");
    setData() {}
    setSize() {}
    valToPos(value: number) {
      return value;
    }
    destroy() {}
  },
}));

/** What Mantine, uPlot and CodeMirror ask of a browser and jsdom does not have. */
class NoObserver {
  observe() {}
  unobserve() {}
  disconnect() {}
}

vi.stubGlobal("ResizeObserver", NoObserver);
window.matchMedia = (query: string) =>
  ({
    matches: false,
    media: query,
    addEventListener() {},
    removeEventListener() {},
    addListener() {},
    removeListener() {},
  }) as unknown as MediaQueryList;
Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true });
Element.prototype.scrollIntoView = () => {};
Element.prototype.scrollTo = () => {};
window.scrollTo = () => {};
Range.prototype.getClientRects = () => [] as unknown as DOMRectList;
HTMLCanvasElement.prototype.getContext = () => null;

// React warns through console.error; a warning is a defect.
let complaints: MockInstance<typeof console.error>;
const { warn } = console;

beforeEach(() => {
  // The files of a worker share one window: what a test has left there, such as a draft, would be found by whichever comes next.
  localStorage.clear();
  sessionStorage.clear();
  complaints = vi.spyOn(console, "error");
  // Mantine looks for what to focus a moment after a menu has opened, when a test may have closed it, and prints all of the page's tree.
  vi.spyOn(console, "warn").mockImplementation((message: unknown, ...more: unknown[]) => {
    if (!String(message).startsWith("[@mantine/hooks/use-focus-trap]")) warn(message, ...more);
  });
  FakeSocket.all = [];
  vi.stubGlobal("WebSocket", FakeSocket);
});

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  const { calls } = complaints.mock;
  // Also what a test has put in the place of a browser's parts: the files of a worker share them.
  vi.restoreAllMocks();
  expect(calls, "a test may not print errors").toEqual([]);
});
