import { Facts } from "@/components/ui/Facts";
import { Panel } from "@/components/ui/Panel";
import { count } from "@/lib/format";
import type { JobSpec } from "@/lib/types";

type Environment = Partial<NonNullable<NonNullable<JobSpec>["environment"]>>;

const MOST_NAMED = 8;

/** Where the packages of a job's ranks come from: installed for it, an environment that is there, or an image. */
export function PackageFacts({ environment }: { environment: Environment }) {
  const { requirements, python, image, own_torch } = environment;
  const facts = [
    requirements && { name: "Installed", value: named(requirements), hint: requirements.join("\n") },
    requirements && { name: "torch", value: own_torch ? "of its own" : "the node's" },
    python && { name: "Python", value: python },
    image && { name: "Image", value: image },
  ].filter((fact) => !!fact);
  if (facts.length === 0) return null;
  return (
    <Panel title="Packages">
      <Facts facts={facts} size="sm" />
    </Panel>
  );
}

function named(lines: readonly string[]): string {
  const more = lines.length > MOST_NAMED ? ` and ${count(lines.length - MOST_NAMED)} more` : "";
  return lines.slice(0, MOST_NAMED).join(", ") + more;
}
