import { CopyAction } from "@/components/ui/CopyBox";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Facts, type Fact } from "@/components/ui/Facts";
import { meshColumns } from "@/components/ui/meshColumns";
import { EmptyState, ErrorState, LoadingState, Panel } from "@/components/ui/Panel";
import { PlanChoice } from "@/components/ui/PlanChoice";
import { ProblemList } from "@/components/ui/ProblemList";
import { StateBadge } from "@/components/ui/StateBadge";
import { bytes, count, plural, sentence, si } from "@/lib/format";
import { toYaml } from "@/lib/spec/yaml";
import type { Plan, RankPlacement } from "@/lib/types";
import type { Draft } from "../useDraft";
import { MemoryEstimate } from "./MemoryEstimate";
import classes from "./Submit.module.css";

const RANK: Column<RankPlacement> = {
  id: "rank",
  header: "Rank",
  cell: (row) => row.rank,
  value: (row) => row.rank,
  width: 70,
};

const PLACEMENT: readonly Column<RankPlacement>[] = [
  { id: "node", header: "Node", cell: (row) => row.node_name },
  { id: "slot", header: "Slot", cell: (row) => row.slot, numeric: true },
];

interface Stage {
  readonly stage: number;
  readonly place: number;
  readonly layers: string;
}

const STAGES: readonly Column<Stage>[] = [
  { id: "stage", header: "Stage", cell: (row) => row.stage, value: (row) => row.stage, width: 70 },
  { id: "place", header: "Place in pipeline", cell: (row) => row.place, numeric: true },
  { id: "layers", header: "Layers", prose: true, cell: (row) => row.layers },
];

/** What the document would do if it were submitted now. */
export function PlanPreview({ draft, onShow }: { draft: Draft; onShow(pointer: string): void }) {
  const { plan, planError, issues, problems, sound } = draft;
  const wrong = issues.length + problems.length;
  return (
    <Panel title="Plan" actions={<PlanStatus draft={draft} />} flush>
      {wrong > 0 ? (
        <ProblemList noun="spec" problems={problems} issues={issues} onShow={onShow} />
      ) : planError ? (
        <ErrorState error={planError} what="the plan" onRetry={plan.refetch} />
      ) : plan.data ? (
        <PlanFacts plan={plan.data} />
      ) : sound ? (
        <LoadingState rows={6} what="the plan" />
      ) : (
        <EmptyState title="No plan yet">Fill in the job to see its plan.</EmptyState>
      )}
    </Panel>
  );
}

function PlanStatus({ draft }: { draft: Draft }) {
  const { issues, problems, current, plan } = draft;
  if (issues.length + problems.length > 0)
    return (
      <StateBadge state="invalid" tone="bad">
        {plural(issues.length + problems.length, "problem")}
      </StateBadge>
    );
  if (!current) return null;
  return plan.data?.pending ? (
    <StateBadge state="waits" tone="warn">
      would wait
    </StateBadge>
  ) : (
    <StateBadge state="starts" tone="good">
      starts now
    </StateBadge>
  );
}

function PlanFacts({ plan }: { plan: Plan }) {
  return (
    <div className={classes.plan}>
      {plan.pending && (
        <div className={classes.alert} role="note">
          {sentence(plan.pending.text)}
          {plan.pending.next_step && <div>Next: {plan.pending.next_step}</div>}
        </div>
      )}
      {(plan.warnings ?? []).map((warning) => (
        <div key={warning} className={classes.alert} role="note">
          {sentence(warning)}
        </div>
      ))}
      <Facts size="sm" facts={factsOf(plan)} />
      {plan.network && <p className={classes.network}>Between nodes: {plan.network.text}.</p>}
      {plan.choice && <PlanChoice choice={plan.choice} />}
      {plan.stages.length > 0 && (
        <DataTable label="Stages" rows={stagesOf(plan)} columns={STAGES} rowId={({ stage }) => String(stage)} />
      )}
      {plan.memory_per_rank && <MemoryEstimate memory={plan.memory_per_rank} />}
      {plan.placement && (
        <DataTable
          label="Placement"
          rows={plan.placement}
          columns={[RANK, ...meshColumns(plan.placement), ...PLACEMENT]}
          rowId={(row) => String(row.rank)}
        />
      )}
      <EffectiveSpec plan={plan} />
    </div>
  );
}

function factsOf(plan: Plan): Fact[] {
  const { global_batch_size: batch, micro_batch_size: micro, micro_batches: parts, world_size: world } = plan;
  return [
    { name: "Ranks", value: count(world), hint: plan.strategy },
    ...(batch !== null ? [{ name: "Global batch", value: count(batch), hint: batchHint(parts, micro) }] : []),
    {
      name: "Reproducible",
      value: plan.reproducible ? "bit-identical" : "numerically equivalent",
      hint: plan.reproducible ? "on any number of replicas" : undefined,
    },
    {
      name: "Parameters",
      value: plan.parameter_count === null ? "unknown" : si(plan.parameter_count),
      hint: plan.parameter_count === null ? "known once the job runs" : undefined,
    },
    ...(plan.memory_per_rank
      ? [{ name: "Memory per rank", value: bytes(plan.memory_per_rank.total), hint: "estimated" }]
      : []),
  ];
}

function batchHint(parts: number | null, micro: number | null): string {
  if (parts === null) return "largest micro-batch that fits, found with trial steps";
  return parts === 1 ? "one micro-batch" : `${count(parts)} micro-batches of ${count(micro)}`;
}

function stagesOf(plan: Plan): Stage[] {
  return plan.stages.map(({ place, layers }, stage) => ({ stage, place, layers }));
}

function EffectiveSpec({ plan }: { plan: Plan }) {
  const text = toYaml(plan.spec);
  return (
    <details className={classes.effective}>
      <summary>Effective spec, every default filled in</summary>
      <div className={classes.copy}>
        <CopyAction value={text} label="Copy YAML" />
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre className={classes.yaml} tabIndex={0} role="region" aria-label="Effective spec">
        {text}
      </pre>
    </details>
  );
}
