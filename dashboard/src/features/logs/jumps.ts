/** Places of a log as people write them. Pure. */
import type { LogPlace } from "./api/logs";

const NUMBER = /^\d{1,3}(?:,?\d{3})*$|^\d+$/;
const CLOCK = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/;

/** A line by its number, or the first one at or after a moment; null where it is neither. A time without a day is the last one before `newest`. */
export function placeOf(text: string, newest: Date): LogPlace | null {
  const word = text.trim();
  if (NUMBER.test(word)) {
    const line = Number(word.replaceAll(",", ""));
    return line > 0 && Number.isSafeInteger(line) ? { line } : null;
  }
  const moment = clockBefore(word, newest) ?? dateOf(word);
  return moment && { since: moment.toISOString() };
}

function clockBefore(word: string, newest: Date): Date | null {
  const [, hours, minutes, seconds = "0"] = CLOCK.exec(word) ?? [];
  if (hours === undefined || Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return null;
  const moment = new Date(newest);
  moment.setHours(Number(hours), Number(minutes), Number(seconds), 0);
  if (moment > newest) moment.setDate(moment.getDate() - 1);
  return moment;
}

/** A date with or without a time, in local time unless it names a zone. */
function dateOf(word: string): Date | null {
  if (!/^\d{4}-\d\d-\d\d/.test(word)) return null;
  const moment = new Date(word.length === 10 ? `${word}T00:00` : word.replace(" ", "T"));
  return Number.isNaN(moment.getTime()) ? null : moment;
}
