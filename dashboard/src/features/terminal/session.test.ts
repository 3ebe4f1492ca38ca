import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ExecSession, MOST_FRAME_BYTES, WINDOW_BYTES, type SessionEnd, type Started } from "./api/session";

/** The coordinator's end of an exec session. */
class ExecSocket {
  static last: ExecSocket;
  binaryType = "";
  sent: (string | Uint8Array)[] = [];
  closed = false;
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((message: { data: string | ArrayBuffer }) => void) | null = null;

  constructor(readonly url: string) {
    ExecSocket.last = this;
  }
  send(frame: string | Uint8Array): void {
    this.sent.push(frame);
  }
  close(): void {
    this.closed = true;
  }
  say(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  print(bytes: number[]): void {
    this.onmessage?.({ data: new Uint8Array(bytes).buffer });
  }
  get messages(): unknown[] {
    return this.sent.filter((frame) => typeof frame === "string").map((frame) => JSON.parse(frame) as unknown);
  }
  get input(): number {
    return this.sent.reduce((sum, frame) => sum + (typeof frame === "string" ? 0 : frame.length), 0);
  }
}

const started: Started = { node: "node-1", rank: 2, generation: 1, command: ["/bin/bash"] };
let ends: SessionEnd[];
let begun: Started[];
let printed: { output: Uint8Array; taken: () => void }[];
let session: ExecSession;

beforeEach(() => {
  vi.stubGlobal("WebSocket", ExecSocket);
  [ends, begun, printed] = [[], [], []];
  session = new ExecSession(
    "job 1",
    { rank: 2, command: [], rows: 30, columns: 90 },
    {
      onStarted: (each) => begun.push(each),
      onOutput: (output, taken) => printed.push({ output, taken }),
      onEnd: (end) => ends.push(end),
    },
  );
  ExecSocket.last.onopen?.();
});
afterEach(() => vi.unstubAllGlobals());

describe("an exec session", () => {
  it("starts with its rank, its command and the terminal's size", () => {
    expect(ExecSocket.last.url).toMatch(/^ws:.*\/api\/v1\/training\/jobs\/job%201\/exec$/);
    expect(ExecSocket.last.messages).toEqual([
      { type: "start", tty: true, term: "xterm-256color", rank: 2, command: [], rows: 30, columns: 90 },
    ]);
  });

  it("sends no key before the command runs, then all of them as UTF-8", () => {
    session.type("early");
    expect(ExecSocket.last.input).toBe(0);
    ExecSocket.last.say({ type: "started", ...started });
    expect(begun).toEqual([{ type: "started", ...started }]);
    session.type("ü");
    expect([...ExecSocket.last.sent.at(-1)!]).toEqual([0xc3, 0xbc]);
    session.resize({ rows: 5, columns: 6 });
    expect(ExecSocket.last.messages.at(-1)).toEqual({ type: "size", rows: 5, columns: 6 });
  });

  it("keeps a large paste within the window and goes on with what was taken", () => {
    ExecSocket.last.say({ type: "started", ...started });
    session.type("x".repeat(WINDOW_BYTES + 10));
    expect(ExecSocket.last.input).toBe(WINDOW_BYTES);
    ExecSocket.last.say({ type: "taken", bytes: MOST_FRAME_BYTES });
    expect(ExecSocket.last.input).toBe(WINDOW_BYTES + 10);
  });

  it("acknowledges output once it is drawn, and not after the end", () => {
    ExecSocket.last.print([1, 104, 105]);
    expect(new TextDecoder().decode(printed[0]!.output)).toBe("hi");
    expect(ExecSocket.last.messages).toHaveLength(1);
    printed[0]!.taken();
    expect(ExecSocket.last.messages.at(-1)).toEqual({ type: "taken", bytes: 2 });
    ExecSocket.last.print([1, 104]);
    ExecSocket.last.say({ type: "exited", exit_code: 137, message: "" });
    printed[1]!.taken();
    expect(ExecSocket.last.messages).toHaveLength(2);
    expect(ends).toEqual([{ exitCode: 137, message: "" }]);
  });

  it("tells once how it ended: a refusal, a lost connection, or its user", () => {
    ExecSocket.last.say({ type: "ended", code: "idle", message: "no input for 30 min" });
    ExecSocket.last.onclose?.();
    session.close();
    expect(ends).toEqual([{ exitCode: null, message: "no input for 30 min" }]);
    expect(ExecSocket.last.closed).toBe(true);
  });

  it("says of a lost connection that the command has ended", () => {
    ExecSocket.last.say({ type: "started", ...started });
    ExecSocket.last.onclose?.();
    expect(ends[0]!.message).toContain("the command beside the rank has ended");
  });
});
