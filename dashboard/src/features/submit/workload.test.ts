import { describe, expect, it } from "vitest";
import { parse, setField, type Part } from "@/lib/spec/document";
import { schemaAt, validate } from "@/lib/spec/schema";
import { specSchema } from "@/testing/specSchema";
import { TEMPLATES, templateNamed } from "./templates";
import { WITHOUT, withWorkload, workloadOf, type Workload } from "./workload";

const KINDS: readonly Workload[] = ["model", "entrypoint", "script"];
const ORDER = Object.keys(specSchema.properties!);
const GPT = templateNamed("gpt_stdlib").text;

const COMMENTED = `# why this job exists
name: one # short
resources:
  nodes: 2 # two machines
  min_nodes: 1
model:
  kind: gpt
data:
  kind: stdlib_text
# measured last week
training:
  steps: 10 # enough
# of the second try
environment:
  working_directory: /opt # everywhere
fault_tolerance:
  max_restarts: 1
  spares: 1 # in reserve
`;

/** What became of a document as these kinds were chosen one after the other. */
function chosen(text: string, ...kinds: Workload[]): string {
  return kinds.reduce<{ text: string; aside: readonly Part[] }>(
    (now, kind) => withWorkload(now.text, now.aside, kind, ORDER),
    { text, aside: [] },
  ).text;
}

const valueOf = (text: string) => parse(text).value as Record<string, unknown>;

describe("choosing a workload", () => {
  it("leaves a script only what scripts have, and the comments of that", () => {
    expect(chosen(COMMENTED, "script")).toBe(`# why this job exists
name: one # short
resources:
  nodes: 2 # two machines
  min_nodes: 1
script:
  path: train.py
# of the second try
environment:
  working_directory: /opt # everywhere
fault_tolerance:
  max_restarts: 1
`);
  });

  it("puts everything back, comments included, on the way back to the model", () => {
    expect(chosen(COMMENTED, "script", "model")).toContain("# measured last week\ntraining:\n  steps: 10 # enough\n");
    for (const text of [COMMENTED, ...TEMPLATES.map((template) => template.text)].filter(
      (one) => workloadOf(valueOf(one)) === "model",
    )) {
      expect(valueOf(chosen(text, "script", "entrypoint", "script", "entrypoint", "model"))).toEqual(valueOf(text));
    }
  });

  it("keeps what was edited meanwhile, and what was edited before", () => {
    const script = setField(chosen(GPT, "script"), ["name"], "mine");
    expect(valueOf(chosen(setField(script, ["script", "args"], ["--fast"]), "model", "script"))).toMatchObject({
      name: "mine",
      script: { args: ["--fast"] },
    });
    const edited = chosen(setField(GPT, ["training", "steps"], 7), "script", "model");
    expect(valueOf(edited)).toMatchObject({ training: { steps: 7 } });
  });

  it("leaves behind a template's own description, which comes back with its kind, and keeps one's own", () => {
    expect(valueOf(GPT).description).toMatch(/GPT/);
    expect(valueOf(chosen(GPT, "script"))).not.toHaveProperty("description");
    expect(valueOf(chosen(GPT, "script", "entrypoint", "model")).description).toBe(valueOf(GPT).description);
    expect(valueOf(chosen(setField(GPT, ["description"], "Mine"), "script")).description).toBe("Mine");
    expect(valueOf(chosen(setField(chosen(GPT, "script"), ["description"], "Mine"), "model")).description).toBe("Mine");
  });

  it("keeps the spelling of numbers", () => {
    const text = "script: { path: a.py, args: [ --lr, 1e4, 007 ] }\nenvironment: { variables: { BUILD: 0x1F } }\n";
    expect(valueOf(chosen(text, "model", "script"))).toEqual(valueOf(text));
    expect(chosen(text, "model", "script")).toContain("args: [ --lr, 1e4, 007 ]");
  });

  it("keeps the training of an entrypoint, and drops what needs a known model", () => {
    const document = valueOf(chosen(GPT, "entrypoint"));
    expect(document).toMatchObject({
      training: { steps: 400 },
      optimizer: { lr: 0.002 },
      entrypoint: "package.module:function",
    });
    for (const dropped of ["model", "data"]) expect(document).not.toHaveProperty(dropped);
    expect(valueOf(chosen(templateNamed("gpt_auto").text, "entrypoint"))).not.toHaveProperty("parallelism");
    expect(valueOf(chosen(templateNamed("gpt_tensor").text, "entrypoint"))).not.toHaveProperty("parallelism.tensor");
  });

  it("begins a model with data and training where nothing is known of them", () => {
    expect(valueOf(chosen(templateNamed("own_loop").text, "model"))).toMatchObject({
      model: { kind: "gpt" },
      data: { kind: "stdlib_text" },
      training: { steps: expect.any(Number) },
    });
    expect(valueOf(chosen("", "script"))).toEqual({ script: { path: "train.py" } });
  });

  it("takes an empty part of a stored spec for none", () => {
    const stored = "name: one\nmodel: null\ndata: null\ntraining: null\nentrypoint: null\nscript:\n  path: a.py\n";
    expect(valueOf(chosen(stored, "model", "entrypoint"))).toEqual({
      name: "one",
      training: { steps: 1000 },
      entrypoint: "package.module:function",
    });
  });

  it.each(KINDS)("fits the schema as %s, whatever template it came from", (kind) => {
    for (const { name, text } of TEMPLATES) {
      const document = valueOf(chosen(text, kind));
      expect([
        name,
        workloadOf(document),
        ...validate(specSchema, document).map(({ pointer, message }) => `${pointer} ${message}`),
      ]).toEqual([name, kind]);
    }
  });

  it("names only parts and fields that the schema has", () => {
    const unknown = KINDS.flatMap((kind) => WITHOUT[kind]).filter((path) => schemaAt(specSchema, path, {}) === null);
    expect(unknown).toEqual([]);
  });
});
