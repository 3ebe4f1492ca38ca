import { describe, expect, it } from "vitest";
import { inParts } from "./metrics";

const addressOf = (part: string[]) => part.map((name) => `&name=${encodeURIComponent(name)}`).join("");

describe("inParts", () => {
  it("asks for a thousand long names in parts that an address of 8 KiB can hold", () => {
    const names = Array.from({ length: 1_000 }, (_, i) =>
      `gradient/transformer.h.${String(i)}.attn.c_attn.weight/`.repeat(3),
    );
    const parts = inParts(names);
    expect(parts.flat()).toEqual(names);
    for (const part of parts) expect(addressOf(part).length).toBeLessThan(7_000);
  });

  it("asks for few names at once, whatever their length", () => {
    const parts = inParts(Array.from({ length: 120 }, (_, i) => `m${String(i)}`));
    expect(parts.map((part) => part.length)).toEqual([50, 50, 20]);
  });

  it("asks for nothing where everything has come", () => {
    expect(inParts([])).toEqual([]);
  });
});
