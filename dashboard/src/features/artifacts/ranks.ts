/** "0, 3" -> [0, 3]; null where it is no list of ranks. */
export function ranksOf(text: string): number[] | null {
  const parts = text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
  return parts.length > 0 && parts.every((part) => /^\d{1,6}$/.test(part)) ? [...new Set(parts.map(Number))] : null;
}
