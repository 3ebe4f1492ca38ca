/** What time it is on the coordinator, told by the `Date` of its answers: the browser's clock may be off by hours. */

/** The header counts whole seconds, and servers make it anew once a second. */
const UNCERTAIN_MS = 2_000;
let offset = 0;

/** The coordinator's time now, or at a moment of the browser's clock. */
export function serverNow(at = Date.now()): number {
  return at + offset;
}

/**
 * Corrects the coordinator's time by as much as an answer proves it wrong. `sent` and `received` are moments of the browser's clock.
 * Nothing is learned from an answer that a cache may have kept.
 */
export function learnServerTime(headers: Headers, sent: number, received: number): void {
  const date = Date.parse(headers.get("Date") ?? "");
  if (Number.isNaN(date) || headers.has("Age") || headers.get("Cache-Control")?.includes("max-age")) return;
  const [least, most] = [date - received, date + UNCERTAIN_MS - sent];
  if (least <= most) offset = Math.min(most, Math.max(least, offset));
}
