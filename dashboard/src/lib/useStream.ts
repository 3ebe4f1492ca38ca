import { useEffect, useEffectEvent, useState } from "react";
import { Stream, type StreamStatus } from "./stream";
import type { StreamFrame } from "./types";

interface Options {
  /** null: no stream now. */
  path: string | null;
  after: number | null;
  onFrame(frame: StreamFrame): void;
  onMissed(): void;
}

/** A stream for as long as the component lives and `path` and `after` stay the same. */
export function useStream({ path, after, onFrame, onMissed }: Options): StreamStatus {
  const [status, setStatus] = useState<StreamStatus>("connecting");
  const frame = useEffectEvent(onFrame);
  const missed = useEffectEvent(onMissed);
  useEffect(() => {
    if (path === null) return;
    const stream = new Stream(path, after, {
      onFrame: (news) => frame(news),
      onMissed: () => missed(),
      onStatus: setStatus,
    });
    return () => stream.close();
  }, [path, after]);
  return path === null ? "closed" : status;
}
