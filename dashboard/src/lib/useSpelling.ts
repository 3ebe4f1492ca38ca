import { useState } from "react";

/**
 * The text of a field whose value is something else: as it was typed, for as long as that means the value; else as `write` spells the value.
 *
 * A learning rate typed as `3e-4` is not rewritten as 0.0003, and a value that is changed elsewhere is shown at once.
 */
export function useSpelling<T>(
  value: T | undefined,
  read: (text: string) => unknown,
  write: (value: T) => string,
  /** Whether what is typed is not yet the value. */
  isBeingTyped = false,
): [text: string, setText: (text: string) => void] {
  const [typed, setTyped] = useState<string | null>(null);
  const isShown = typed !== null && (isBeingTyped || JSON.stringify(read(typed)) === JSON.stringify(value));
  return [isShown ? typed : value === undefined ? "" : write(value), setTyped];
}
