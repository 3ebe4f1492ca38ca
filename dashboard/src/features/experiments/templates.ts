/** The example experiments of the repository are the templates: one copy of each. */
const FILES = import.meta.glob<string>("../../../../examples/experiments/*.yaml", {
  query: "?raw",
  import: "default",
  eager: true,
});

const MINIMAL = `# Every combination of what varies is a trial; the plan on the right counts them.
name: my-first-experiment
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

export interface Template {
  name: string;
  text: string;
}

export const TEMPLATES: readonly Template[] = [
  ...Object.entries(FILES).map(([path, text]) => ({ name: path.split("/").at(-1)!.replace(".yaml", ""), text })),
  { name: "minimal", text: MINIMAL },
];

export function templateNamed(name: string | undefined): Template {
  return TEMPLATES.find((template) => template.name === name) ?? TEMPLATES.at(-1)!;
}
