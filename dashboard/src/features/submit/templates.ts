/** The example specs of the repository are the templates: one copy of each. */
const FILES = import.meta.glob<string>("../../../../examples/*.yaml", {
  query: "?raw",
  import: "default",
  eager: true,
});

const MINIMAL = `# Everything not said here has a default; the plan on the right shows the effective spec.
name: my-first-job
resources:
  nodes: 1
  slots_per_node: 1
model:
  kind: mlp
data:
  kind: digits
training:
  epochs: 20
  global_batch_size: 64
parallelism:
  strategy: ddp
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
  return TEMPLATES.find((template) => template.name === (name ?? "gpt_stdlib")) ?? TEMPLATES[0]!;
}
