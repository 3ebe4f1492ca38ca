/** Values of a page's address, which anybody may have typed: each is what it should be, or undefined. */
import { labelsOf, pairsOf } from "@/features/jobs/labels";

export function text(value: unknown): string | undefined {
  return value === undefined || value === null || value === "" ? undefined : String(value);
}

export function trueOrFalse(value: unknown): boolean | undefined {
  return value === true || value === "true" ? true : value === false || value === "false" ? false : undefined;
}

export function whole(value: unknown): number | undefined {
  const number = Number(value);
  return value !== undefined && value !== "" && Number.isInteger(number) && number >= 0 ? number : undefined;
}

export function oneOf<T extends string>(value: unknown, choices: readonly T[]): T | undefined {
  return choices.find((choice) => choice === value);
}

/** Names in a list or, as one would write it by hand, between commas; each once. */
export function names(value: unknown, most?: number): string[] | undefined {
  const given = Array.isArray(value) ? value.map(String) : String(value ?? "").split(",");
  const found = [...new Set(given.map((name) => name.trim()).filter((name) => name !== ""))];
  return found.length > 0 ? found.slice(0, most) : undefined;
}

/** Labels as KEY=VALUE, one of each key, since a job has no more; a comma may stand in a value. */
export function labels(value: unknown): string[] | undefined {
  const pairs = Array.isArray(value) ? value.map(String) : String(value ?? "").split(/,(?=[a-z0-9][a-z0-9._/-]*=)/);
  const found = pairsOf(labelsOf(pairs.filter((pair) => /^[a-z0-9][a-z0-9._/-]*=/.test(pair))));
  return found.length > 0 ? found : undefined;
}
