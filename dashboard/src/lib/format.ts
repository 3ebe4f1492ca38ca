/** Numbers, sizes and times as people read them. Missing is a dash, never zero. */
import type { AnyFloat } from "./types";

export const MISSING = "–";
const SI = ["", "k", "M", "G", "T", "P"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function toNumber(value: AnyFloat): number {
  return typeof value === "number" ? value : value === "NaN" ? NaN : value === "Infinity" ? Infinity : -Infinity;
}

export function count(value: number | null | undefined): string {
  return value == null ? MISSING : Math.round(value).toLocaleString("en-US");
}

/** A magnitude with an SI prefix: 12.4k, 3.1M. */
export function si(value: AnyFloat | null | undefined, digits = 1): string {
  if (value == null) return MISSING;
  const number = toNumber(value);
  if (!Number.isFinite(number)) return String(number);
  const power = scale(Math.abs(number), 1000, SI.length);
  const scaled = number / 1000 ** power;
  return `${power === 0 && Number.isInteger(number) ? number : scaled.toFixed(Math.abs(scaled) >= 100 ? 0 : digits)}${SI[power]}`;
}

/** "620 W", "1.2 kW". */
export function siWithUnit(value: number, unit: string): string {
  const [, number = "", prefix = ""] = /^(.*?)([^\d.]?)$/.exec(si(value))!;
  return `${number} ${prefix}${unit}`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return MISSING;
  const power = scale(value, 1024, BINARY.length);
  return `${power === 0 ? value : (value / 1024 ** power).toFixed(1)} ${BINARY[power]}`;
}

function scale(value: number, base: number, limit: number): number {
  if (value < base) return 0;
  return Math.min(limit - 1, Math.floor(Math.log(value) / Math.log(base) + 1e-9));
}

/** A measured value with four significant digits: 2.381, 0.0003, 3e-7. */
export function measured(value: AnyFloat | null | undefined): string {
  if (value == null) return MISSING;
  const number = toNumber(value);
  if (!Number.isFinite(number)) return String(number);
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e-3 || size >= 1e6) return Number(number.toPrecision(3)).toExponential().replace("e+", "e");
  return size >= 1000 ? count(number) : String(Number(number.toPrecision(4)));
}

const TINY = 0.01;

/** An axis in one notation (2e-4, 1e-3 rather than 2e-4, 0.001), with the digits that tell neighbours apart. */
export function tickLabels(ticks: readonly (number | null)[]): string[] {
  const shown = ticks.filter((tick) => tick !== null);
  const largest = Math.max(...shown.map(Math.abs));
  const apart = Math.min(
    ...shown
      .slice(1)
      .map((tick, index) => Math.abs(tick - shown[index]!))
      .filter(Boolean),
    largest,
  );
  const digits = Math.min(9, Math.max(4, Math.ceil(Math.log10(largest / apart)) + 1));
  return ticks.map((tick) => {
    if (tick === null) return "";
    const rounded = Number(tick.toPrecision(digits));
    if (rounded !== 0 && largest < TINY) return rounded.toExponential();
    const power = scale(Math.abs(rounded), 1000, SI.length);
    return `${Number((rounded / 1000 ** power).toPrecision(digits))}${SI[power]}`;
  });
}

/** An axis of sizes: all in the prefix of the largest. */
export function byteTicks(ticks: readonly (number | null)[]): string[] {
  const power = scale(Math.max(0, ...ticks.map((tick) => tick ?? 0)), 1024, BINARY.length);
  return ticks.map((tick) =>
    tick === null ? "" : `${Number((tick / 1024 ** power).toPrecision(4))} ${BINARY[power]}`,
  );
}

/** An axis of times: all in seconds, or all in milliseconds. */
export function timeTicks(ticks: readonly (number | null)[]): string[] {
  const milli = Math.max(0, ...ticks.map((tick) => tick ?? 0)) < 1;
  return ticks.map((tick) =>
    tick === null ? "" : `${Number((milli ? tick * 1000 : tick).toPrecision(4))} ${milli ? "ms" : "s"}`,
  );
}

/** A length of time: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min, 3 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return MISSING;
  const whole = Math.max(0, Math.round(seconds));
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** A short length of time, to two digits: 0.17 ms, 97 ms, 0.35 s; from 10 s on as any other. */
export function shortTime(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return MISSING;
  if (seconds >= 9.95) return duration(seconds);
  const inSeconds = seconds >= 0.0995 || seconds === 0;
  return `${Number((inSeconds ? seconds : seconds * 1000).toPrecision(2))} ${inSeconds ? "s" : "ms"}`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

/** How long ago, coarsely enough not to flicker. */
export function age(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function percent(share: number | null | undefined, digits = 0): string {
  return share == null ? MISSING : `${(share * 100).toFixed(digits)}%`;
}

/** Whole percents of what is done, rounded down: 100 means everything. */
export function wholePercents(share: number): number {
  // 0.29 * 100 is a little less than 29.
  return Math.floor(share * 100 + 1e-9);
}

export function clock(time: string | number): string {
  return new Date(time).toLocaleTimeString("en-GB", { hour12: false });
}

/** The local day: 2026-11-25. */
export function day(time: string | number): string {
  return new Date(time).toLocaleDateString("en-CA");
}

/** The zone of all times that are shown: "Europe/Berlin, GMT+1". */
export function timeZone(): string {
  const format = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  const offset = format.formatToParts().find(({ type }) => type === "timeZoneName")?.value ?? "";
  const { timeZone: name } = format.resolvedOptions();
  return name === offset ? name : `${name}, ${offset}`;
}

export function dateTime(time: string | number): string {
  return `${day(time)} ${clock(time)}`;
}

export function plural(amount: number, noun: string): string {
  return `${count(amount)} ${noun}${amount === 1 ? "" : "s"}`;
}

/** `gradient_norm` -> "Gradient norm". */
export function title(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A word of code, as in "checkpoint.directory is not set" or "tensor=2 does not divide". */
const CODE_FIRST = /^[a-z]\w*(?:[._=]\w)/;

/** The coordinator's texts begin in lower case, to stand behind a colon; alone, they are sentences. A name from the spec stays as it is. */
export function sentence(text: string): string {
  return CODE_FIRST.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
}
