/** Pools as documents that `paceline pools apply` takes too, and in words. Pure. */
import { age } from "@/lib/format";
import { isRecord } from "@/lib/spec/schema";
import { toYaml } from "@/lib/spec/yaml";
import type { NodePool } from "@/lib/types";

/** A document to begin with, for each provider. */
export const POOL_TEMPLATES: Record<string, { label: string; text: string }> = {
  ssh: {
    label: "Machines with SSH",
    text: `name: lab
provider:
  type: ssh
  user: ada
  hosts: [gpu1.lab, gpu2.lab]
`,
  },
  slurm: {
    label: "Slurm",
    text: `name: slurm
provider: {type: slurm, partition: gpu}
slots: 8
min_nodes: 0
max_nodes: 4
autoscale:
  device: cuda
  idle_seconds: 300
`,
  },
  kubernetes: {
    label: "Kubernetes",
    text: `name: cluster
provider: {type: kubernetes, image: registry.example/paceline-agent:latest}
slots: 8
max_nodes: 4
`,
  },
  ray: {
    label: "Ray",
    text: `name: ray
provider: {type: ray, address: "10.0.0.1:6379"}
slots: 8
max_nodes: 4
`,
  },
  manual: {
    label: "Machines that people start",
    text: `name: desks
provider: {type: manual}
max_nodes: 10
`,
  },
};

/** The pool as somebody would write it: without what is not set. */
export function documentOf(pool: NodePool): string {
  const { name, provider, slots, min_nodes, max_nodes, labels, spot, autoscale, server } = pool;
  return toYaml(withoutEmpty({ name, provider, slots, min_nodes, max_nodes, labels, spot, autoscale, server }));
}

function withoutEmpty(value: Record<string, unknown>): Record<string, unknown> {
  const kept = Object.entries(value)
    .map(([name, each]) => [name, isRecord(each) ? withoutEmpty(each) : Array.isArray(each) ? each.map(item) : each])
    .filter(([, each]) => each != null && each !== false && !isEmpty(each));
  return Object.fromEntries(kept);
}

const item = (value: unknown) => (isRecord(value) ? withoutEmpty(value) : value);
const isEmpty = (value: unknown) =>
  (Array.isArray(value) && value.length === 0) || (isRecord(value) && Object.keys(value).length === 0);

/** "cuda slots, an idle node leaves after 5 min, cost 0.3 an hour"; null: people say how many nodes it has. */
export function autoscaleInWords({ autoscale }: NodePool): string | null {
  if (!autoscale) return null;
  const { device, idle_seconds: idle, cost } = autoscale;
  return `${device} slots, an idle node leaves after ${age(idle * 1000)}, cost ${cost} an hour`;
}

/** Of the budget, how much is used; null: there is none. */
export function budgetShare({ autoscale, node_hours: used }: NodePool): number | null {
  const budget = autoscale?.budget_node_hours;
  if (budget == null) return null;
  return budget === 0 ? 1 : Math.min(1, (used ?? 0) / budget);
}

/** The type of the pool's provider; that of an unreadable pool as it is stored. */
export function providerOf(pool: NodePool): string {
  return typeof pool.provider.type === "string" ? pool.provider.type : "unknown";
}
