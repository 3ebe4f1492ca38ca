import { useEffect, useState } from "react";
import type { MetricsStore } from "./store";

/** Re-renders at most every `interval` ms while the store changes: for text, which cannot be read faster. */
export function useStoreVersion(store: MetricsStore | undefined, interval = 500): number {
  const [version, setVersion] = useState(store?.version ?? 0);
  useEffect(() => {
    if (!store) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = store.subscribe(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setVersion(store.version);
      }, interval);
    });
    return () => {
      unsubscribe();
      clearTimeout(timer);
    };
  }, [store, interval]);
  return version;
}
