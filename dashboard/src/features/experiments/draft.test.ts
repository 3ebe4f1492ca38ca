import { describe, expect, it } from "vitest";
import { suggest } from "@/lib/spec/completion";
import { parse, setField } from "@/lib/spec/document";
import { validate } from "@/lib/spec/schema";
import { job } from "@/testing/fixtures";
import { experimentSchema, specSchema } from "@/testing/specSchema";
import { axesOf, choicesAt, combinedSchema, documentFrom, jobPaths, onlyInText, textOf, valuesFrom } from "./draft";
import { TEMPLATES } from "./templates";

const SCHEMA = combinedSchema(experimentSchema, specSchema);
const issuesOf = (text: string) => validate(SCHEMA, parse(text).value);

describe("the document of an experiment", () => {
  it.each(TEMPLATES.map(({ name, text }) => [name, text]))("is sound as the template %s", (_, text) => {
    expect(issuesOf(text)).toEqual([]);
  });

  it("begins with a job's spec, without what trials have from the experiment", () => {
    const one = job({ name: "gpt", project: "nlp" });
    const { value } = parse(documentFrom(one));
    expect(value).toEqual({
      name: "gpt-varied",
      project: "nlp",
      repeats: 1,
      job: { model: one.spec.model, fault_tolerance: one.spec.fault_tolerance },
    });
  });

  it("calls itself what it is where a field is not known", () => {
    expect(issuesOf("name: sweep\ntrialz: 3\n")).toContainEqual({
      pointer: "/trialz",
      message: expect.stringContaining("`trialz` is not a field of an experiment"),
    });
  });

  it("is wrong where its base job is, at the place in the job", () => {
    const wrong = issuesOf("name: a\njob:\n  model: {kind: gpt, dimm: 3}\n");
    expect(wrong.map(({ pointer }) => pointer)).toEqual(["/job/model/dimm"]);
    expect(wrong[0]!.message).toContain("did you mean `dim`");
  });

  it("takes the arguments and variables of a script as they are typed", () => {
    const text = "name: a\njob: {script: {path: a.py, args: [--lr, 1e4]}, environment: {variables: {V: 1.10}}}\n";
    expect(issuesOf(text)).toEqual([]);
    expect(parse(text).value).toMatchObject({
      job: { script: { args: ["--lr", "1e4"] }, environment: { variables: { V: "1.10" } } },
    });
  });

  it("completes the paths of a job's fields as keys of its grid", () => {
    const text = "name: a\ngrid:\n  optim\njob: {}\n";
    const labels = suggest(SCHEMA, text, text.indexOf("optim") + 5).map(({ label }) => label);
    expect(labels).toContain("training.global_batch_size");
    expect(labels).not.toContain("name");
  });
});

describe("the axes of a grid", () => {
  it("are read and written as one types them", () => {
    for (const text of ["1, 2, 4", "ddp, fsdp", "true, false", "0.0001..0.1 x 4 log", "1..9 x 3"])
      expect(textOf(valuesFrom(text))).toBe(text);
    expect(valuesFrom("1e-3, fp16")).toEqual([0.001, "fp16"]);
    expect(valuesFrom(" , ")).toBeUndefined();
  });

  it("of lists and sections stay whole while they are typed", () => {
    const betas = textOf([[0.9, 0.95]]);
    expect(valuesFrom(`${betas}, [0.9, 0.99]`)).toEqual([
      [0.9, 0.95],
      [0.9, 0.99],
    ]);
    for (const values of [
      [null, [1, 2]],
      [{ kind: "sgd", lr: 0.1 }, { kind: "adamw" }],
      ["a,b", ["c"]],
    ])
      expect(valuesFrom(textOf(values))).toEqual(values);
    expect(valuesFrom("[0.9, 0.95], [0.9,")).toBe("[0.9, 0.95], [0.9,");
    expect(textOf("[0.9, 0.95], [0.9,")).toBe("[0.9, 0.95], [0.9,");
  });

  it("are set by a path that is one key, and the last one takes the grid with it", () => {
    const text = setField("name: a # why\n", ["grid", "optimizer.lr"], [0.1]);
    expect(axesOf(parse(text).value)).toEqual([{ path: "optimizer.lr", values: [0.1] }]);
    expect(setField(text, ["grid", "optimizer.lr"], undefined)).toBe("name: a # why\n");
  });

  it("are offered for the variant that the job has", () => {
    expect(jobPaths(specSchema, { model: { kind: "gpt" } })).toContain("model.dim");
    expect(jobPaths(specSchema, { model: { kind: "mlp" } })).not.toContain("model.layers");
  });

  it("have choices where the schema counts them", () => {
    expect(choicesAt(specSchema, "parallelism.strategy", {})).toContain("fsdp");
    expect(choicesAt(specSchema, "optimizer.lr", {})).toBeNull();
  });

  it("say which parts only the text edits", () => {
    expect(onlyInText({ zip: [{}], search: null })).toEqual(["zip"]);
  });
});
