import { describe, expect, it } from "vitest";
import { lineOf, wordsOf } from "./words";

describe("words of a command line", () => {
  it.each([
    ["", []],
    ["  nvidia-smi  -L ", ["nvidia-smi", "-L"]],
    [`sh -c 'echo "a b"; exit 3'`, ["sh", "-c", `echo "a b"; exit 3`]],
    [`echo "it's" '' a\\ b`, ["echo", "it's", "", "a b"]],
    [`a"b"'c'`, ["abc"]],
    [`"a\\"b"`, [`a"b`]],
    [`'a\\b'`, ["a\\b"]],
    [`"a\\d\\\\"`, ["a\\d\\"]],
    ["ü 🚀", ["ü", "🚀"]],
  ])("splits %j", (line, words) => expect(wordsOf(line)).toEqual(words));

  it.each([`'a`, `"a`, `a "b' c`])("does not guess the end of %j", (line) => expect(wordsOf(line)).toBeNull());

  it.each([
    [["python", "-m", "a.b", "--lr=1e-4", "0.9,0.95"], "python -m a.b --lr=1e-4 0.9,0.95"],
    [["bash", "-c", `echo "$RANK" | sed 's/0/it''s/'`, "", "a\nb", "ü", "\\"], null],
  ])("are written as a line that means them: %j", (words, line) => {
    expect(wordsOf(lineOf(words))).toEqual(words);
    if (line !== null) expect(lineOf(words)).toBe(line);
  });
});
