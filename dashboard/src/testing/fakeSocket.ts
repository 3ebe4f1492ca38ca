import type { StreamFrame } from "@/lib/types";

/** A WebSocket that the test is the server of. */
export class FakeSocket {
  static all: FakeSocket[] = [];
  onmessage: ((message: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  closed = false;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  /** The newest connection to a path. */
  static to(path: string): FakeSocket {
    const found = FakeSocket.all.filter((socket) => new URL(socket.url).pathname.endsWith(path)).at(-1);
    if (!found)
      throw new Error(`nothing is connected to ${path}; there are ${FakeSocket.all.map(({ url }) => url).join(", ")}`);
    return found;
  }

  get after(): string | null {
    return new URL(this.url).searchParams.get("after");
  }

  send(frame: Partial<StreamFrame>): void {
    this.onmessage?.({ data: JSON.stringify({ seq: 0, topic: "metrics", data: {}, ...frame }) });
  }

  hello(asOf = 0): void {
    this.send({ type: "hello", seq: asOf, data: { as_of_seq: asOf } });
  }

  /** The server, or the network, ends it. */
  drop(): void {
    this.onclose?.();
  }

  close(): void {
    this.closed = true;
  }
}
