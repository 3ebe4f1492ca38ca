import { templatesFrom, type PictureName, type Template } from "@/lib/spec/choices";

/** The example specs of the repository are the templates: one copy of each. */
const FILES = import.meta.glob<string>("../../../../examples/*.yaml", {
  query: "?raw",
  import: "default",
  eager: true,
});

const MINIMAL = `# Everything not said here has a default; the plan on the right shows the effective spec.
name: my-first-job
description: A small classifier of handwritten digits, with the default for everything else
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

/** What each is an example of, in the order in which they are offered; what one does is its `description`. */
const TITLES: Record<string, string> = {
  gpt_stdlib: "GPT, data parallel",
  digits_mlp: "Perceptron on one slot",
  mnist_mlp: "Perceptron on MNIST",
  cifar10_resnet: "ResNet on CIFAR-10",
  digits_entrypoint: "Your own model",
  own_loop: "Your own training loop",
  own_packages: "Your own packages",
  gpt_tokens: "GPT on your own tokens",
  hf_llama: "Hugging Face Llama",
  gpt_auto: "GPT, plan chosen automatically",
  gpt_fsdp: "GPT, fully sharded (FSDP)",
  gpt_tensor: "GPT, tensor parallel",
  gpt_pipeline: "GPT, pipeline parallel",
  gpt_compressed: "GPT, compressed gradients",
  gpt_object_store: "GPT, checkpoints in an object store",
  digits_parameter_server: "Parameter server",
  minimal: "Start small",
};

const PICTURES: Record<string, PictureName> = {
  gpt_stdlib: "replicas",
  digits_mlp: "dots",
  mnist_mlp: "dots",
  cifar10_resnet: "image",
  digits_entrypoint: "code",
  own_loop: "terminal",
  own_packages: "code",
  gpt_auto: "columns",
  gpt_fsdp: "shards",
  gpt_tensor: "columns",
  gpt_pipeline: "stages",
  gpt_compressed: "squeeze",
  gpt_object_store: "server",
  digits_parameter_server: "server",
  minimal: "dots",
};

export const TEMPLATES = templatesFrom({ ...FILES, "minimal.yaml": MINIMAL }, TITLES, PICTURES);

export function templateNamed(name: string | undefined): Template {
  return TEMPLATES.find((template) => template.name === (name ?? "gpt_stdlib")) ?? TEMPLATES[0]!;
}
