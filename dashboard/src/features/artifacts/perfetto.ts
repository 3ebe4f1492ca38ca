/**
 * Opens a trace in Perfetto's page by messages between windows, as https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui describes: its window is
 * pinged until it answers, then gets the file. The file goes from this page to that one within the browser, and to no server.
 */
export const PERFETTO = "https://ui.perfetto.dev";
export const PING_MS = 200;
/** For that page to load. */
export const ANSWER_MS = 20_000;

export class PerfettoError extends Error {}

/** To be called by a click: browsers let no other moment open a window. Resolves once the trace is handed over; rejects with PerfettoError. */
export async function openInPerfetto(
  title: string,
  load: () => Promise<ArrayBuffer>,
  answerMs = ANSWER_MS,
): Promise<void> {
  const opened = window.open(PERFETTO);
  if (!opened)
    throw new PerfettoError(
      "The browser has blocked the new window. Allow pop-ups of this page, or download the trace.",
    );
  const loading = load();
  loading.catch(() => undefined); // awaited below
  await answerOf(opened, answerMs);
  opened.postMessage({ perfetto: { buffer: await loading, title } }, PERFETTO);
}

/** Pings the window until it answers. */
function answerOf(opened: Window, answerMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (done: () => void) => {
      clearInterval(pinging);
      clearTimeout(giveUp);
      window.removeEventListener("message", hear);
      done();
    };
    const hear = ({ source, origin, data }: MessageEvent<unknown>) => {
      if (source === opened && origin === PERFETTO && data === "PONG") settle(resolve);
    };
    const pinging = setInterval(() => {
      if (opened.closed)
        settle(() => reject(new PerfettoError("Perfetto's window was closed before it had the trace.")));
      else opened.postMessage("PING", PERFETTO);
    }, PING_MS);
    const giveUp = setTimeout(() => {
      const why = `${PERFETTO} has not answered within ${Math.round(answerMs / 1000)} s: this browser may not reach it.`;
      settle(() => reject(new PerfettoError(`${why} Download the trace and open it where it can be reached.`)));
    }, answerMs);
    window.addEventListener("message", hear);
  });
}
