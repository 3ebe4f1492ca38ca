/**
 * One live stream: connects, resumes by `seq`, reconnects with back-off, and notices a silent peer.
 *
 * The server pings every 15 s; a connection that says nothing for three pings is treated as dead. Frames at or below the
 * position already reached are dropped, so a replay after a reconnect is harmless.
 */
import type { StreamFrame } from "./types";

export type StreamStatus = "connecting" | "live" | "waiting" | "closed";

export interface StreamHandlers {
  onFrame(frame: StreamFrame): void;
  /** It began without a cursor, the cursor is unknown to the server, or frames were dropped: fetch a snapshot again. */
  onMissed?(): void;
  onStatus?(status: StreamStatus): void;
}

export const FIRST_RETRY_MS = 500;
export const LONGEST_RETRY_MS = 15_000;
export const SILENCE_LIMIT_MS = 45_000;

/** Doubling waits with a quarter of jitter, so that browsers do not return in one wave. */
export function retryDelay(attempt: number, random: number): number {
  const base = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** attempt);
  return base * (0.75 + random / 2);
}

export class Stream {
  private socket: WebSocket | null = null;
  private attempt = 0;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private silenceTimer: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(
    private readonly path: string,
    private after: number | null,
    private readonly handlers: StreamHandlers,
  ) {
    this.connect();
  }

  close(): void {
    this.stopped = true;
    clearTimeout(this.retryTimer);
    clearTimeout(this.silenceTimer);
    this.detach();
    this.handlers.onStatus?.("closed");
  }

  private connect(): void {
    this.handlers.onStatus?.(this.attempt === 0 ? "connecting" : "waiting");
    const socket = new WebSocket(this.url());
    this.socket = socket;
    socket.onmessage = (message) => this.receive(JSON.parse(String(message.data)) as StreamFrame);
    socket.onclose = () => this.retry();
    this.expectNews();
  }

  private url(): string {
    const url = new URL(this.path, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    if (this.after !== null) url.searchParams.set("after", String(this.after));
    return url.href;
  }

  private receive(frame: StreamFrame): void {
    this.expectNews();
    switch (frame.type) {
      case "hello":
        return this.welcome(frame);
      case "ping":
        return;
      case "reset":
        this.after = null;
        return this.handlers.onMissed?.();
      case "gap":
        this.after = Number(frame.data.to);
        return this.handlers.onMissed?.();
      default:
        return this.deliver(frame);
    }
  }

  private welcome(frame: StreamFrame): void {
    this.attempt = 0;
    this.handlers.onStatus?.("live");
    if (this.after !== null) return;
    this.after = Number(frame.data.as_of_seq ?? frame.seq);
    this.handlers.onMissed?.();
  }

  private deliver(frame: StreamFrame): void {
    if (this.after !== null && frame.seq <= this.after) return;
    this.after = frame.seq;
    this.handlers.onFrame(frame);
  }

  private expectNews(): void {
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => this.retry(), SILENCE_LIMIT_MS);
  }

  private retry(): void {
    if (this.stopped) return;
    this.detach();
    clearTimeout(this.silenceTimer);
    this.handlers.onStatus?.("waiting");
    this.retryTimer = setTimeout(() => this.connect(), retryDelay(this.attempt, Math.random()));
    this.attempt += 1;
  }

  private detach(): void {
    if (!this.socket) return;
    this.socket.onmessage = null;
    this.socket.onclose = null;
    this.socket.close();
    this.socket = null;
  }
}
