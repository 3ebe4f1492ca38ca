import { describe, expect, it } from "vitest";
import { ApiError } from "@/lib/errors";
import { placeAt, suggest } from "@/lib/spec/completion";
import { parse, putIn, rangeOf, setField, takeOut } from "@/lib/spec/document";
import { serverIssues } from "@/lib/spec/issues";
import { validate } from "@/lib/spec/schema";
import { specSchema } from "@/testing/specSchema";
import { TEMPLATES } from "./templates";

const TEXT = `# why this job exists
name: one # short
training:
  steps: 10 # enough
  global_batch_size: 32
model:
  kind: gpt
data:
  kind: stdlib_text
`;

const issuesOf = (text: string) =>
  validate(specSchema, parse(text).value).map(({ pointer, message }) => `${pointer} ${message}`);

describe("the document", () => {
  it("keeps comments and order when the form sets a field", () => {
    expect(setField(TEXT, ["training", "steps"], 20)).toBe(TEXT.replace("steps: 10", "steps: 20"));
  });

  it("adds a field where there was none, parents included", () => {
    const text = setField(TEXT, ["optimizer", "lr"], 0.001);
    expect(parse(text).value).toMatchObject({ optimizer: { lr: 0.001 }, name: "one" });
    expect(text).toContain("# why this job exists");
  });

  it("passes on what a program reads as it is typed", () => {
    const text =
      "script: {path: a.py, args: [--lr, 0.10, 1e4, true, '5']}\nenvironment: {variables: {A: 1.50, B: }}\ntraining: {steps: 1e4}\n";
    expect(parse(text).value).toEqual({
      script: { path: "a.py", args: ["--lr", "0.10", "1e4", "true", "5"] },
      environment: { variables: { A: "1.50", B: null } },
      training: { steps: 10000 },
    });
  });

  it("keeps the spelling of each number when the form sets another field", () => {
    const typed = `script: { path: a.py, args: [ --lr, 1e4, --tag, 007, .5, +5, 1.0E5, yes ] }
environment: { variables: { COMMIT: 8412e10, BUILD: 12345678901234567890, FLAG: 0x1F, RATE: 0.10 } }
training: { seed: 1_000, steps: 1e4 }
`;
    expect(setField(typed, ["name"], "x")).toBe(`${typed}name: x\n`);
    expect(setField(typed, ["training", "steps"], 20)).toBe(typed.replace("steps: 1e4", "steps: 20"));
  });

  it("removes an emptied field, and a part that it leaves empty", () => {
    const text = setField(setField(TEXT, ["resources", "nodes"], 2), ["resources", "nodes"], undefined);
    expect(parse(text).value).not.toHaveProperty("resources");
  });

  it("stays as it is where a field is emptied that its text does not have", () => {
    for (const path of [
      ["environment", "variables"],
      ["training", "seed"],
    ])
      expect(parse(setField(TEXT, path, undefined)).value).toEqual(parse(TEXT).value);
  });

  it("takes a field in a section that has no value yet, and keeps its comments", () => {
    const empty = `${TEXT}checkpoint: # often\n  # keep: 2\n`;
    const text = setField(empty, ["checkpoint", "every_steps"], 5);
    expect(parse(text).value).toMatchObject({ checkpoint: { every_steps: 5 } });
    expect(text).toMatch(/# often\n +# keep: 2\n/);
    expect(parse(setField(empty, ["checkpoint", "keep"], undefined)).value).not.toHaveProperty("checkpoint");
    for (const wrong of ["soon", "[1]"])
      expect(parse(setField(`data: ${wrong}\n`, ["data", "kind"], "hf")).value).toEqual({ data: { kind: "hf" } });
  });

  it("changes a section that is an alias without what it stands for", () => {
    const text = "a: &x {lr: 1, betas: &y [1, 2]}\nb: *x\nc: *y\n";
    expect(parse(setField(text, ["b", "lr"], 3)).value).toEqual({
      a: { lr: 1, betas: [1, 2] },
      b: { lr: 3, betas: [1, 2] },
      c: [1, 2],
    });
    expect(parse(setField(text, ["b", "lr"], undefined)).value).toMatchObject({ a: { lr: 1 }, b: { betas: [1, 2] } });
  });

  it("takes away what an alias stands for", () => {
    const text = "name: &n one\ndescription: *n\ndata: {kind: &k text}\nmodel: {kind: *k}\n";
    expect(parse(setField(text, ["name"], undefined)).value).toMatchObject({ description: "one" });
    const { text: left } = takeOut(putIn(text, [], {}, []), [["data"]]);
    expect(parse(left).value).toMatchObject({ model: { kind: "text" } });
  });

  it("writes lists on one line and fills an empty document", () => {
    expect(setField("", ["model", "hidden"], [64, 32])).toBe("model:\n  hidden: [ 64, 32 ]\n");
  });

  it("leaves text alone that is not YAML, and says where it breaks", () => {
    const broken = "name: [one";
    expect(setField(broken, ["name"], "two")).toBe(broken);
    const message = "line 1, column 7: the bracket [ that opens here is not closed; put ] at its end";
    expect(parse(broken)).toEqual({ value: undefined, problems: [{ from: 6, to: 10, message }] });
  });

  it("tells one mistake once, though the parser stumbles on after it", () => {
    expect(parse("betas: [0.9, 0.95]]\nsteps: 1\n").problems.map(({ message }) => message)).toEqual([
      "line 1, column 19: the bracket ] closes none that is open; remove it, or open one before",
    ]);
  });

  it("names both lines of a key that is there twice", () => {
    const message = "the key 'steps' on line 4 is there already, on line 2; keep one of them";
    expect(parse("training:\n  steps: 1\n  seed: 2\n  steps: 3\n").problems).toEqual([{ from: 33, to: 38, message }]);
  });

  it("outlives an alias of nothing, which the parser takes", () => {
    expect(parse("name: *x\n").problems).toMatchObject([
      { from: 6, to: 8, message: expect.stringMatching(/the alias \*x; .* in quotes/) },
    ]);
    expect(setField("name: *x\n", ["a"], 1)).toBe("name: *x\n");
    expect(parse("a: &x {b: *x}\n").problems).toHaveLength(1);
  });

  it("keeps the parser's words, with their place, where it has no better ones", () => {
    expect(parse("a: ? b\n").problems).toMatchObject([
      { message: expect.stringMatching(/^line 1, column \d+: [^\n]+(?<! column \d+:)$/) },
    ]);
  });

  it("takes the other names of the mesh's axes", () => {
    expect(
      issuesOf(`${TEXT}parallelism: {strategy: fsdp, dp_replicate: 2, dp_shard: 2, tp: 2, cp: 1, pp: 1}\n`),
    ).toEqual([]);
    expect(issuesOf(`${TEXT}parallelism: {tp: two, ep: 2}\n`)).toEqual([
      '/parallelism/tp Must be a whole number, not "two"',
      expect.stringMatching("/parallelism/ep `ep` is not a field of parallelism"),
    ]);
  });

  it("finds the place of a pointer, or of its nearest parent", () => {
    const { from, to } = rangeOf(TEXT, "/training/steps");
    expect(TEXT.slice(from, to)).toBe("10");
    expect(TEXT.slice(rangeOf(TEXT, "/model/dim").from)).toMatch(/^kind: gpt/);
  });
});

describe("validation against the published schema", () => {
  it("finds nothing wrong with the templates", () => {
    expect(TEMPLATES.map(({ name }) => name)).toContain("gpt_stdlib");
    for (const { name, text } of TEMPLATES) expect([name, ...issuesOf(text)]).toEqual([name]);
  });

  it("says how the items of a list are separated where some are missing", () => {
    const told = (betas: string) => issuesOf(`${TEXT}optimizer:\n  kind: adamw\n  betas: [${betas}]\n`);
    expect(told("0.9 0.95")).toEqual(["/optimizer/betas Must have 2 items, not 1; separate them by commas"]);
    expect(told("0.9, 0.95, 0.9")).toEqual(["/optimizer/betas Must have 2 items, not 3"]);
  });

  it("takes a command as one text", () => {
    expect(issuesOf("name: a\nscript: {command: accelerate launch train.py}\n")).toEqual([]);
    expect(issuesOf("name: a\nscript: {path: a.py, args: --tag 'a}\n")).toEqual([
      `/script/args Must be a list, such as [a, b], not "--tag 'a"; close its quote`,
    ]);
  });

  it("tells how a number is written that is one elsewhere", () => {
    expect(issuesOf(TEXT.replace("steps: 10", "steps: 1k"))).toEqual([
      '/training/steps Must be a whole number, not "1k"; write 1000',
    ]);
    expect(issuesOf(TEXT.replace("steps: 10", "steps: 10\n  pause_at_steps: [5; 7]"))).toEqual([
      '/training/pause_at_steps/0 Must be a whole number, not "5; 7"; separate several numbers by commas',
    ]);
  });

  it("names the value and the limit", () => {
    expect(issuesOf(`${TEXT}priority: 101\n`)).toEqual(["/priority Must be at most 100, not 101"]);
    expect(issuesOf(TEXT.replace("steps: 10", "steps: many"))).toEqual([
      '/training/steps Must be a whole number, not "many"',
    ]);
    expect(issuesOf(TEXT.replace("name: one", "name: One!"))[0]).toContain(
      '/name Invalid value "One!": 1 to 63 lower-case letters',
    );
  });

  it("offers the field that may have been meant, in the coordinator's words", () => {
    expect(issuesOf(`${TEXT}enviroment: {}\n`)).toEqual([
      expect.stringMatching(
        /^\/enviroment `enviroment` is not a field of a job spec; did you mean `environment`\? It takes: checkpoint, communication, compile, /,
      ),
    ]);
    expect(issuesOf(`${TEXT}env: {}\n`)[0]).toContain("did you mean `environment`?");
    expect(issuesOf(TEXT.replace("steps: 10", "stpes: 10"))).toContainEqual(
      expect.stringContaining("`stpes` is not a field of training; did you mean `steps`?"),
    );
    expect(issuesOf(`${TEXT}xyz: {}\n`)[0]).toContain("is not a field of a job spec. It takes: ");
    expect(issuesOf(`${TEXT}labels: x\n`)).toEqual(['/labels "x" has no value: write x=VALUE']);
  });

  it("reports a wrong field of one variant once, and an unknown variant by its choices", () => {
    expect(issuesOf(TEXT.replace("kind: gpt", "kind: gpt\n  depth: 20"))).toEqual([
      expect.stringMatching(/^\/model\/depth `depth` is not a field of model \(kind gpt\)\. It takes: context, dim, /),
    ]);
    expect(issuesOf(TEXT.replace("kind: gpt", "kind: gtp"))).toEqual([
      "/model/kind choose one of gpt, hf, mlp, resnet; did you mean `gpt`?",
    ]);
  });

  it("requires a name and allows null where the schema does", () => {
    expect(issuesOf(TEXT.replace(/name: one.*\n/, ""))).toEqual(["/name Required: enter a value"]);
    expect(issuesOf(`${TEXT}checkpoint:\n  every_steps: null\n`)).toEqual([]);
  });
});

describe("completion", () => {
  it("knows the place from the indentation", () => {
    expect(placeAt("a:\n  b:\n    c: 1\n    ", 22)).toEqual({ path: ["a", "b"], key: null });
    expect(placeAt("a:\n  b: ", 8)).toEqual({ path: ["a"], key: "b" });
  });

  it("offers the fields of the chosen variant that are not there yet", () => {
    const text = TEXT.replace("kind: gpt\n", "kind: gpt\n  layers: 2\n  \n");
    const labels = suggest(specSchema, text, text.indexOf("layers: 2\n") + 12).map(({ label }) => label);
    expect(labels).toEqual(expect.arrayContaining(["heads", "dim", "context"]));
    expect(labels).not.toContain("layers");
    expect(labels).not.toContain("depth");
  });

  it("offers values of enumerations and kinds of a union", () => {
    const precision = `${TEXT}precision: `;
    expect(suggest(specSchema, precision, precision.length).map(({ label }) => label)).toEqual([
      "fp32",
      "bf16",
      "fp16",
    ]);
    const optimizer = `${TEXT}optimizer:\n  kind: `;
    expect(suggest(specSchema, optimizer, optimizer.length).map(({ label }) => label)).toEqual([
      "adafactor",
      "adamw",
      "nadam",
      "rmsprop",
      "sgd",
    ]);
  });
});

describe("the coordinator's field errors", () => {
  it("stand at a field that is named without its section, where only one section has it", () => {
    const at = (message: string) => ({ pointer: "", message, code: "inconsistent_spec", hint: null, line: null });
    const error = new ApiError({
      status: 422,
      code: "invalid",
      detail: "d",
      errors: [at("global_batch_size=32 makes 8"), at("kind=x is nothing"), at("constructor is nothing")],
    });
    const document = { training: { global_batch_size: 32 }, model: { kind: "x" }, data: { kind: "y" } };
    const found = serverIssues(error, document);
    expect(found.map(({ pointer }) => pointer)).toEqual(["/training/global_batch_size", "", ""]);
  });

  it("between several fields stand at the first that is named, where the document has it", () => {
    const at = (pointer: string, message: string) => ({
      pointer,
      message,
      code: "inconsistent_spec",
      hint: null,
      line: null,
    });
    const error = new ApiError({
      status: 422,
      code: "invalid",
      detail: "d",
      errors: [
        at("", "communication.ratio=0.05 is for compression top_k"),
        at("", "communication is between replicas"),
        at("", "strategy single is one process"),
        at("/job", "communication.rank=4 is for compression power_sgd"),
      ],
    });
    const communication = { ratio: 0.05, rank: 4 };
    expect(serverIssues(error, { communication, job: { communication } }).map(({ pointer }) => pointer)).toEqual([
      "/communication/ratio",
      "/communication",
      "",
      "/job/communication/rank",
    ]);
  });

  it("land on the field, without the variant that the validator names", () => {
    const error = new ApiError({
      status: 422,
      code: "invalid",
      detail: "d",
      errors: [{ pointer: "/model/gpt/dim", code: "inconsistent_spec", message: "odd", hint: "use 192", line: null }],
    });
    expect(serverIssues(error, { model: { kind: "gpt", dim: 7 } })).toEqual([
      { pointer: "/model/dim", message: "odd; use 192" },
    ]);
  });
});
