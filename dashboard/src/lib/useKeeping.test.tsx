import { renderHook } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { Drafts } from "./drafts";
import { useKeeping } from "./useKeeping";

const SOURCE = "template:gpt";
const drafts = new Drafts("u1", "job");
const stored = () => drafts.read(SOURCE)?.text;

/** A tab in which the template is being edited. */
function tab(text: string) {
  const { result, rerender } = renderHook(({ now }) => useKeeping(drafts, SOURCE, now, "as begun"), {
    initialProps: { now: text },
  });
  return { kept: () => result.current, type: (now: string) => rerender({ now }) };
}

describe("two tabs that edit one template", () => {
  it("know whose text is kept: the other one asks before it is closed", () => {
    const [a, b] = [tab("as begun"), tab("as begun")];
    a.type("a long spec");
    expect(a.kept().isKept()).toBe(true);
    b.type("another one");
    expect([a.kept().isKept(), b.kept().isKept()]).toEqual([false, true]);
    a.kept().keep();
    expect(stored()).toBe("a long spec");
    expect(b.kept().isKept()).toBe(false);
  });

  it("drop no draft of each other, when one submits or goes back to the template", () => {
    const [a, b] = [tab("as begun"), tab("as begun")];
    a.type("a long spec");
    b.kept().drop();
    expect(stored()).toBe("a long spec");
    b.type("b");
    a.type("a longer spec");
    b.type("as begun");
    expect(stored()).toBe("a longer spec");
    a.kept().drop();
    expect(stored()).toBeUndefined();
  });
});

it("drops a restored draft that is submitted as it was", () => {
  drafts.keep(SOURCE, "of yesterday");
  tab("of yesterday").kept().drop();
  expect(stored()).toBeUndefined();
});
