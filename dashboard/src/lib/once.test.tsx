import { renderHook } from "@testing-library/react";
import { expect, it } from "vitest";
import { useOnce } from "./once";

function sending(answers: (() => Promise<string>)[]) {
  const sent: { input: unknown; key: string }[] = [];
  const send = (input: unknown, key: string) => {
    sent.push({ input, key });
    return answers[sent.length - 1]!();
  };
  const { result } = renderHook(() => useOnce(send));
  return { sent, once: (input: unknown) => result.current(input) };
}

const answered = (text: string) => () => Promise.resolve(text);

it("sends an input once, while its answer is on the way and afterwards", async () => {
  const { sent, once } = sending([answered("made")]);
  expect(await Promise.all([once({ name: "a" }), once({ name: "a" })])).toEqual(["made", "made"]);
  expect(await once({ name: "a" })).toBe("made");
  expect(sent).toHaveLength(1);
});

it("sends another input under another key", async () => {
  const { sent, once } = sending([answered("one"), answered("two")]);
  expect([await once({ name: "a" }), await once({ name: "b" })]).toEqual(["one", "two"]);
  expect(new Set(sent.map(({ key }) => key)).size).toBe(2);
});

it("sends what failed again, under the same key", async () => {
  const { sent, once } = sending([() => Promise.reject(new Error("unreachable")), answered("made")]);
  await expect(once({ name: "a" })).rejects.toThrow("unreachable");
  expect(await once({ name: "a" })).toBe("made");
  expect(new Set(sent.map(({ key }) => key)).size).toBe(1);
});
