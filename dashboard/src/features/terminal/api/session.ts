/**
 * One exec session: a command beside a rank, over its own WebSocket. The frames are those of `cluster/exec_frames.py`.
 *
 * Both sides send no more than `WINDOW_BYTES` that the other has not taken, so that a flood of output waits on the node and not in the browser.
 */
export const WINDOW_BYTES = 512 * 1024;
export const MOST_FRAME_BYTES = 32 * 1024;

export interface Size {
  rows: number;
  columns: number;
}

export interface StartOptions extends Size {
  rank: number;
  command: readonly string[];
}

export interface Started {
  node: string;
  rank: number;
  generation: number;
  command: string[];
}

/** How a session ended: with the command's exit code, or with a reason of the coordinator's or of this browser's. */
export type SessionEnd = { exitCode: number; message: string } | { exitCode: null; message: string };

export interface SessionHandlers {
  onStarted(started: Started): void;
  /** `taken` is called once the output is drawn, and lets as much follow. */
  onOutput(output: Uint8Array, taken: () => void): void;
  onEnd(end: SessionEnd): void;
}

type FromCoordinator =
  | ({ type: "started" } & Started)
  | { type: "taken"; bytes: number }
  | { type: "exited"; exit_code: number; message: string }
  | { type: "ended"; code: string; message: string };

const LOST =
  "The connection was lost, and with it the command beside the rank has ended. The job itself goes on. What was printed stays here.";

export class ExecSession {
  private readonly socket: WebSocket;
  private readonly encoder = new TextEncoder();
  private waiting: Uint8Array<ArrayBuffer>[] = [];
  private window = WINDOW_BYTES;
  private running = false;
  private over = false;

  constructor(
    jobId: string,
    start: StartOptions,
    private readonly handlers: SessionHandlers,
  ) {
    const { protocol, host } = window.location;
    const scheme = protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${host}/api/v1/training/jobs/${encodeURIComponent(jobId)}/exec`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.say({ type: "start", tty: true, term: "xterm-256color", ...start });
    this.socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => this.receive(data);
    this.socket.onclose = () => this.finish({ exitCode: null, message: LOST });
  }

  /** Keys that were typed, or text that was pasted. */
  type(text: string): void {
    if (!this.running) return;
    const bytes = this.encoder.encode(text);
    for (let at = 0; at < bytes.length; at += MOST_FRAME_BYTES)
      this.waiting.push(bytes.slice(at, at + MOST_FRAME_BYTES));
    this.flush();
  }

  resize({ rows, columns }: Size): void {
    if (this.running) this.say({ type: "size", rows, columns });
  }

  /** Ends the command as the end of its terminal would. */
  close(message = "You ended the session."): void {
    this.finish({ exitCode: null, message });
  }

  private say(message: object): void {
    this.socket.send(JSON.stringify(message));
  }

  private receive(data: string | ArrayBuffer): void {
    if (this.over) return;
    if (typeof data !== "string") {
      const output = new Uint8Array(data, 1); // the first byte names the stream, which a terminal has one of
      this.handlers.onOutput(output, () => {
        if (!this.over) this.say({ type: "taken", bytes: output.length });
      });
      return;
    }
    const message = JSON.parse(data) as FromCoordinator;
    switch (message.type) {
      case "started":
        this.running = true;
        this.handlers.onStarted(message);
        break;
      case "taken":
        this.window += message.bytes;
        this.flush();
        break;
      case "exited":
        this.finish({ exitCode: message.exit_code, message: message.message });
        break;
      case "ended":
        this.finish({ exitCode: null, message: message.message });
        break;
    }
  }

  private flush(): void {
    for (let next = this.waiting[0]; next && next.length <= this.window; next = this.waiting[0]) {
      this.window -= next.length;
      this.socket.send(next);
      this.waiting.shift();
    }
  }

  private finish(end: SessionEnd): void {
    if (this.over) return;
    this.over = true;
    this.running = false;
    this.waiting = [];
    this.socket.close();
    this.handlers.onEnd(end);
  }
}
