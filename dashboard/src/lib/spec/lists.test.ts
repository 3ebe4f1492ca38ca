import { describe, expect, it } from "vitest";
import { listField } from "./lists";
import type { Resolved } from "./schema";

const TEXTS: Resolved = { type: "array", items: { type: "string" }, nullable: true };

describe("a list between commas", () => {
  const names = listField("/gradients/names", TEXTS)!;

  it("is read as the texts that it was written of", () => {
    const texts = ["numpy>=1.26,<2", "", " a ", 'say "x"', '"x"', '"', "a, b", "7", "[bash, -c]", "a\nb"];
    expect(names.read(names.write(texts))).toEqual(texts);
  });

  it("has quotes only where an item needs them", () => {
    expect(names.write(["*.weight", 'say "x"', "7", "a,b"])).toBe('*.weight, say "x", 7, "a,b"');
    expect(names.read('*.weight,, say "x", 7 , "a,b",')).toEqual(["*.weight", 'say "x"', "7", "a,b"]);
    expect(names.read(" , ")).toBeUndefined();
  });

  it("keeps a quote that is not closed", () => {
    expect(names.read('"a, b"c')).toEqual(['"a', 'b"c']);
  });

  it("of numbers keeps a text among them a text", () => {
    const steps = listField("/training/pause_at_steps", { ...TEXTS, items: { type: "integer" } })!;
    expect(steps.read("1, 2.5, soon")).toEqual([1, 2.5, "soon"]);
    expect(steps.read(steps.write([1, "2", "1,5"]))).toEqual([1, "2", "1,5"]);
  });
});

it("takes requirements with one on each line, since they have commas of their own", () => {
  const requirements = listField("/environment/requirements", TEXTS)!;
  const lines = ["numpy>=1.26,<2", 'torch; python_version < "3.13"'];
  expect(requirements.read("numpy>=1.26,<2\n\n einops ")).toEqual(["numpy>=1.26,<2", "einops"]);
  expect(requirements.read(requirements.write(lines))).toEqual(lines);
  expect(requirements.read("\n")).toBeUndefined();
});

it("takes a command and its arguments as they are typed in a shell", () => {
  for (const pointer of ["/script/command", "/script/args"]) {
    const line = listField(pointer, TEXTS)!;
    expect(line.read("python train.py --betas 0.9,0.95\n --tag 'a b'")).toEqual([
      "python",
      "train.py",
      "--betas",
      "0.9,0.95",
      "--tag",
      "a b",
    ]);
    const words = ["bash", "-c", "a, b\nc", ""];
    expect(line.read(line.write(words))).toEqual(words);
    expect(line.write("accelerate launch train.py")).toBe("accelerate launch train.py");
    expect(line.read("--tag 'a")).toBe("--tag 'a");
    expect(line.read(" ")).toBeUndefined();
  }
});
