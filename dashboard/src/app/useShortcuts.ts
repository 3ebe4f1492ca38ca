import { useHotkeys } from "@mantine/hooks";
import { useState } from "react";

export type Overlay = "palette" | "help";

/** The page's own search field. */
const SEARCH_FIELD = 'main input[aria-label^="Search"]';

/** The keys that work on every page, and what they have opened. */
export function useShortcuts() {
  const [overlay, setOverlay] = useState<Overlay | null>(null);
  const unlessInDialog = (action: () => void) => () => {
    if (!document.querySelector('[aria-modal="true"]')) action();
  };
  const search = unlessInDialog(() => {
    const field = document.querySelector<HTMLInputElement>(SEARCH_FIELD);
    if (field) field.focus();
    else setOverlay("palette");
  });
  // In fields and in the YAML editor too.
  useHotkeys([["mod+K", () => setOverlay(overlay === "palette" ? null : "palette")]], [], true);
  // On some keyboards the slash needs Shift.
  useHotkeys([
    ["/", search],
    ["shift+/", search],
    ["shift+?", unlessInDialog(() => setOverlay("help"))],
  ]);
  return { overlay, open: setOverlay, close: () => setOverlay(null) };
}
