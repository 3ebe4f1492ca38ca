import { templatesFrom, type PictureName, type Template } from "@/lib/spec/choices";

/** The example experiments of the repository are the templates: one copy of each. */
const FILES = import.meta.glob<string>("../../../../examples/experiments/*.yaml", {
  query: "?raw",
  import: "default",
  eager: true,
});

const MINIMAL = `# Every combination of what varies is a trial; the plan on the right counts them.
name: my-first-experiment
description: Three learning rates, two runs each, on handwritten digits
repeats: 2
grid:
  optimizer.lr: [0.001, 0.003, 0.01]
job:
  resources:
    slots: 1
  model:
    kind: mlp
  data:
    kind: digits
  optimizer:
    kind: adamw
  training:
    epochs: 5
    global_batch_size: 64
`;

/** What each asks, in the order in which they are offered; what one does is its `description`. */
const TITLES: Record<string, string> = {
  sweep_lr: "Learning rate sweep",
  scaling_gpt: "Scaling of a GPT",
  ddp_vs_fsdp: "DDP beside FSDP",
  mnist_twins: "One process and its distributed twins",
  minimal: "Start small",
};

const PICTURES: Record<string, PictureName> = {
  sweep_lr: "curve",
  scaling_gpt: "replicas",
  ddp_vs_fsdp: "shards",
  mnist_twins: "dots",
  minimal: "curve",
};

export const TEMPLATES = templatesFrom({ ...FILES, "minimal.yaml": MINIMAL }, TITLES, PICTURES);

export function templateNamed(name: string | undefined): Template {
  return TEMPLATES.find((template) => template.name === name) ?? TEMPLATES.at(-1)!;
}
