/**
 * Pages are loaded in parts. A part cannot be loaded where a connection broke on the way, or where the coordinator was
 * upgraded and no longer has the file that an open page asks for; loading the whole page anew helps with both.
 */

const RELOADED_AT = "paceline-reloaded-at";
const SOON_MS = 30_000;

const missing = new WeakSet<object>();

/** Whether the error is that of a part that could not be loaded. */
export const isMissingPart = (error: unknown) => error instanceof Error && missing.has(error);

/** Load the page anew when a part is missing; a second time within half a minute the error is shown instead. */
export function reloadOnMissingPart(
  reload: () => void,
  storage: Storage = sessionStorage,
  now: () => number = Date.now,
) {
  const listen = (event: VitePreloadErrorEvent) => {
    missing.add(event.payload);
    if (now() - Number(storage.getItem(RELOADED_AT)) < SOON_MS) return;
    storage.setItem(RELOADED_AT, String(now()));
    reload();
  };
  window.addEventListener("vite:preloadError", listen);
  return () => window.removeEventListener("vite:preloadError", listen);
}
