import { describe, expect, it } from "vitest";
import { wordsOf } from "./words";

describe("words of a command line", () => {
  it.each([
    ["", []],
    ["  nvidia-smi  -L ", ["nvidia-smi", "-L"]],
    [`sh -c 'echo "a b"; exit 3'`, ["sh", "-c", `echo "a b"; exit 3`]],
    [`echo "it's" '' a\\ b`, ["echo", "it's", "", "a b"]],
    [`a"b"'c'`, ["abc"]],
    [`"a\\"b"`, [`a"b`]],
    [`'a\\b'`, ["a\\b"]],
    ["ü 🚀", ["ü", "🚀"]],
  ])("splits %j", (line, words) => expect(wordsOf(line)).toEqual(words));

  it.each([`'a`, `"a`, `a "b' c`])("does not guess the end of %j", (line) => expect(wordsOf(line)).toBeNull());
});
