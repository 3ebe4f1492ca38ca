import { useCallback, useEffect, useRef, useState } from "react";
import type { Drafts } from "./drafts";

export interface Keeping {
  /** Whether the kept draft has this text: another tab may have put its own in its place. */
  isKept(): boolean;
  /** Whether the browser had room for the newest text. */
  hasRoom: boolean;
  /** Keeps the text once more; whether there was room. */
  keep(): boolean;
  /** Drops what was kept here, never the draft of another tab. */
  drop(): void;
}

/** Keeps a document that was begun as `initial` while it differs from that. */
export function useKeeping(drafts: Drafts, source: string, text: string, initial: string): Keeping {
  const own = useRef(text);
  const [hasRoom, setHasRoom] = useState(true);
  const keep = useCallback(() => {
    const isDone = drafts.keep(source, text);
    if (isDone) own.current = text;
    setHasRoom(isDone);
    return isDone;
  }, [drafts, source, text]);
  const drop = useCallback(() => {
    if (drafts.read(source)?.text === own.current) drafts.drop(source);
  }, [drafts, source]);
  useEffect(() => {
    if (text === initial) drop();
    else keep();
  }, [text, initial, keep, drop]);
  return { isKept: () => drafts.read(source)?.text === text, hasRoom, keep, drop };
}
