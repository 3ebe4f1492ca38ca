/** The kinds of workload: which parts of a spec each goes without, and the document taken from one kind to another. Pure. */
import { parse, putIn, takeOut, type Part } from "@/lib/spec/document";
import { isRecord, pointerOf, type Path } from "@/lib/spec/schema";
import { TEMPLATES } from "./templates";

export type Workload = "model" | "entrypoint" | "script";

/** What the coordinator refuses for a kind of workload, and what has no effect on it. */
export const WITHOUT: Record<Workload, readonly Path[]> = {
  model: [["entrypoint"], ["script"]],
  entrypoint: [["model"], ["data"], ["script"], ["parallelism", "tensor"], ["parallelism", "context"]],
  script: [
    ["model"],
    ["data"],
    ["entrypoint"],
    ["initial_weights"],
    ["optimizer"],
    ["schedule"],
    ["parallelism"],
    ["communication"],
    ["precision"],
    ["compile"],
    ["reproducible"],
    ["training"],
    ["checkpoint"],
    ["profile"],
    ["gradients"],
    ["resources", "memory_per_slot"],
    ["fault_tolerance", "recovery"],
    ["fault_tolerance", "spares"],
  ],
};

/** What a kind of workload cannot be without, as it begins. */
const FIRST: Record<Workload, Record<string, unknown>> = {
  model: { model: { kind: "gpt" }, data: { kind: "stdlib_text" }, training: { steps: 1000 } },
  entrypoint: { entrypoint: "package.module:function", training: { steps: 1000 } },
  script: { script: { path: "train.py" } },
};

export function workloadOf(value: unknown): Workload {
  const kinds: readonly Workload[] = ["model", "entrypoint", "script"];
  return kinds.find((name) => isRecord(value) && value[name] != null) ?? "model";
}

/** Whether a workload has the part or the field at `path`. */
export function has(workload: Workload, path: Path): boolean {
  const pointer = pointerOf(path);
  return !WITHOUT[workload].some((without) => pointerOf(without) === pointer);
}

/**
 * The document with another kind of workload.
 *
 * Parts that this kind has come back from where they were put aside, or as they begin; parts that it goes without are put aside, with
 * their comments. `order` is that of the spec's fields.
 */
export function withWorkload(
  text: string,
  aside: readonly Part[],
  next: Workload,
  order: readonly string[],
): { text: string; aside: readonly Part[] } {
  const whole = putIn(
    text,
    aside.filter(({ path }) => has(next, path)),
    FIRST[next],
    order,
  );
  const { text: left, parts } = takeOut(whole, without(next, parse(whole).value));
  const newer = new Set(parts.map(({ path }) => pointerOf(path)));
  return {
    text: left,
    aside: [...aside.filter(({ path }) => !has(next, path) && !newer.has(pointerOf(path))), ...parts],
  };
}

/** Strategy auto goes by what is known of a model; of an entrypoint's model nothing is. A template's description goes with its workload. */
function without(next: Workload, value: unknown): readonly Path[] {
  const { parallelism, description }: Record<string, unknown> = isRecord(value) ? value : {};
  const auto = next === "entrypoint" && isRecord(parallelism) && parallelism.strategy === "auto";
  return [
    ...(auto ? [["parallelism"]] : []),
    ...(describesAnother(next, description) ? [["description"]] : []),
    ...WITHOUT[next],
  ];
}

/** Whether it is the description, unchanged, of a template of another kind of workload. */
function describesAnother(next: Workload, description: unknown): boolean {
  return TEMPLATES.map(({ text }) => parse(text).value).some(
    (one) => isRecord(one) && one.description === description && workloadOf(one) !== next,
  );
}
