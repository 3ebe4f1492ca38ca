/** The inputs of a form by their place in its document. */
import { pathOf, pointerOf } from "./schema";

export const FIELD = "data-field";

/** What marks an input as that of the value at a pointer. */
export function fieldAt(pointer: string): Record<string, string> {
  return { [FIELD]: pointer };
}

/** Gives the focus to the input at a pointer, or to the nearest one around it; whether there is one. */
export function focusField(root: ParentNode, pointer: string): boolean {
  const inputs = [...root.querySelectorAll<HTMLElement>(`[${FIELD}]`)];
  for (let path = pathOf(pointer); path.length > 0; path = path.slice(0, -1)) {
    const input = inputs.find((each) => each.getAttribute(FIELD) === pointerOf(path));
    input?.focus();
    if (input) return true;
  }
  return false;
}
