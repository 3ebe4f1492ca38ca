import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { validate, type Schema } from "./schema";
import { useDocument } from "./useDocument";

const SCHEMA: Schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

const draft = (initial: string) =>
  renderHook(({ schema }: { schema: Schema | undefined }) => useDocument(initial, schema), {
    initialProps: { schema: undefined as Schema | undefined },
  });

describe("what is worth asking the coordinator about", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("is there as soon as the schema is: nobody has typed yet", () => {
    const { result, rerender } = draft("name: one\n");
    expect(result.current.debounced).toBeNull();
    rerender({ schema: SCHEMA });
    expect(result.current.debounced).toEqual({ name: "one" });
    expect(result.current.debounced).toBe(result.current.value);
  });

  it("stays what it was while one types, and is the new text a moment later", () => {
    const { result, rerender } = draft("name: one\n");
    rerender({ schema: SCHEMA });
    act(() => result.current.setText("name: two\n"));
    expect([result.current.value, result.current.debounced]).toEqual([{ name: "two" }, { name: "one" }]);
    act(() => void vi.advanceTimersByTime(1000));
    expect(result.current.debounced).toBe(result.current.value);
    expect(result.current.debounced).toEqual({ name: "two" });
  });

  it("is nothing where the text is wrong", () => {
    const { result, rerender } = draft("name: one\n");
    rerender({ schema: SCHEMA });
    act(() => result.current.setText("name: 1\n"));
    act(() => void vi.advanceTimersByTime(1000));
    expect(result.current.debounced).toBeNull();
    expect(result.current.local).toEqual(validate(SCHEMA, { name: 1 }));
  });
});
