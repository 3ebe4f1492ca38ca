/** Where the fields of `communication` have an effect, by the rest of the spec: said beside them before anything is refused. Pure. */
import { OF_COMPRESSION } from "@/lib/constants.generated";
import { isRecord, type Path } from "@/lib/spec/schema";

const OF_DDP: readonly string[] = ["bucket_mb", "static_graph"];
const CUTS = ["tensor", "context", "pipeline"];

function partOf(spec: unknown, name: string): Record<string, unknown> {
  const part = isRecord(spec) ? spec[name] : undefined;
  return isRecord(part) ? part : {};
}

function strategyOf(spec: unknown): string {
  return String(partOf(spec, "parallelism").strategy ?? "ddp");
}

const AUTO = { algorithm: "auto", compression: "auto" };

/** The spec with the section that the word `auto` stands for. */
export function withSection(spec: unknown): unknown {
  return isRecord(spec) && spec.communication === "auto" ? { ...spec, communication: AUTO } : spec;
}

/** The change of one field where the document has the word: the whole section takes its place. */
export function changed(spec: unknown, path: Path, value: unknown): [Path, unknown] {
  const [section, field] = path;
  if (section !== "communication" || field === undefined || !isRecord(spec) || spec.communication !== "auto")
    return [path, value];
  const fields = Object.entries({ ...AUTO, [field]: value }).filter(([, each]) => each !== undefined);
  return [[section], Object.fromEntries(fields)];
}

/** Why the job sends no gradients that these fields could change; null: it does. */
export function whyNoCommunication(spec: unknown): string | null {
  const plan = partOf(spec, "parallelism");
  const strategy = strategyOf(spec);
  if (strategy !== "ddp" && strategy !== "fsdp")
    return `Not with strategy ${strategy}: only with ddp, or fsdp with replicate.`;
  const cut = CUTS.find((name) => Number(plan[name] ?? 1) > 1);
  if (cut) return `Not with ${cut}=${String(plan[cut])}: gradients are summed in one message there.`;
  if (strategy === "fsdp" && Number(plan.replicate ?? 1) === 1)
    return "Only between replicas: fsdp has one unless parallelism.replicate is 2 or more.";
  return null;
}

/** Why this field would change nothing; null: it would. */
export function whyUnused(spec: unknown, field: string): string | null {
  if (OF_DDP.includes(field) && strategyOf(spec) !== "ddp") return "Only with strategy ddp";
  const compressions = OF_COMPRESSION[field];
  const chosen = String(partOf(spec, "communication").compression ?? "none");
  if (field === "lossy" && chosen !== "auto") return "Only with compression auto";
  return compressions && chosen !== "auto" && !compressions.includes(chosen)
    ? `Only with compression ${compressions.join(" or ")}`
    : null;
}
