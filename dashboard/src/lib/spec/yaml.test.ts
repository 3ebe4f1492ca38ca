import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parse, setField } from "./document";
import { readYaml, toYaml } from "./yaml";

/** What texts mean to the coordinator and to the command line, which are held to the same table. */
const VALUES = JSON.parse(readFileSync("../tests/training/spec/yaml_values.json", "utf8")) as Record<string, unknown>;

describe("a text", () => {
  it.each(Object.entries(VALUES))("means what it means to the coordinator: %s", (text, value) => {
    expect(parse(text).value).toEqual(value);
  });

  it("has no list as a key, as the coordinator says", () => {
    expect(parse("a: 1\n{b: 1}: c\n").problems.map(({ message }) => message)).toEqual([
      "a key on line 2 is a list or a mapping; keys are words",
    ]);
  });
});

describe("a value that is written", () => {
  const LABELS = {
    ablation: "off",
    answer: "yes",
    build: "1_000",
    mask: "0b11",
    size: "0x1F",
    on: "true",
    rate: "1e4",
  };

  it("is read as it was, also where its texts look like something else", () => {
    expect(readYaml(toYaml({ name: "on", labels: LABELS })).toJS()).toEqual({ name: "on", labels: LABELS });
    expect(toYaml(LABELS)).not.toMatch(/: [^"]/);
    expect(readYaml(setField("name: a\n", ["labels"], LABELS)).toJS()).toEqual({ name: "a", labels: LABELS });
  });

  it("is the same number, whichever it is", () => {
    const numbers = [0, -0, 1e21, 1e-7, -1.5, 0.1 + 0.2, 2 ** 53, Infinity, -Infinity, NaN];
    expect(readYaml(toYaml({ numbers })).toJS()).toEqual({ numbers });
  });

  it("has quotes only where it needs them", () => {
    expect(toYaml({ lr: 0.001, big: 1e21, tag: "a b", day: "2020-01-01", is: true, no: null })).toBe(
      'lr: 0.001\nbig: 1e+21\ntag: a b\nday: 2020-01-01\nis: true\n"no": null\n',
    );
  });
});
