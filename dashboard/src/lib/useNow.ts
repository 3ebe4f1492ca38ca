import { useEffect, useState } from "react";
import { serverNow } from "./serverTime";

/** The browser's time, re-rendering every `interval` milliseconds: to be compared with what this page has noted itself. */
export function useNow(interval = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}

/** The coordinator's time: to be compared with the times that it has written. */
export function useServerNow(interval = 1000): number {
  return serverNow(useNow(interval));
}
