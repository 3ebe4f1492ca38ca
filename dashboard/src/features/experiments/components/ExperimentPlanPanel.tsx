import { DataTable, type Column } from "@/components/ui/DataTable";
import { Facts, type Fact } from "@/components/ui/Facts";
import { EmptyState, ErrorState, LoadingState, Panel } from "@/components/ui/Panel";
import { ProblemList } from "@/components/ui/ProblemList";
import { StateBadge } from "@/components/ui/StateBadge";
import { bytes, count, duration, measured, MISSING, plural } from "@/lib/format";
import type { ExperimentPlan, PlannedConfiguration } from "@/lib/types";
import { lossOfReplacing } from "../experiments";
import { differing } from "../fields";
import { axisTitle, valueInWords } from "../figures";
import type { ExperimentDraft } from "../useExperimentDraft";
import classes from "./ExperimentForm.module.css";

interface Props {
  draft: ExperimentDraft;
  onShow(pointer: string): void;
}

/** What the document would run if it were started now. */
export function ExperimentPlanPanel({ draft, onShow }: Props) {
  const { plan, planError, issues, problems, sound, current } = draft;
  const wrong = issues.length + problems.length;
  return (
    <Panel
      title="Plan"
      actions={
        wrong > 0 ? (
          <StateBadge state="invalid" tone="bad">
            {plural(wrong, "problem")}
          </StateBadge>
        ) : current && plan.data ? (
          <StateBadge state="ready">{plural(plan.data.trials - plan.data.refused, "trial")}</StateBadge>
        ) : null
      }
      flush
    >
      {wrong > 0 ? (
        <ProblemList noun="experiment" problems={problems} issues={issues} onShow={onShow} />
      ) : planError ? (
        <ErrorState error={planError} what="the plan" onRetry={plan.refetch} />
      ) : plan.data ? (
        <Planned plan={plan.data} />
      ) : sound ? (
        <LoadingState rows={6} what="the plan" />
      ) : (
        <EmptyState title="No plan yet">Fill in the experiment to see its trials.</EmptyState>
      )}
    </Panel>
  );
}

function Planned({ plan }: { plan: ExperimentPlan }) {
  return (
    <div className={classes.plan}>
      <Refusals plan={plan} />
      {(plan.replaces?.cancels ?? 0) > 0 && (
        <div className={classes.alert} role="note">
          There is an experiment of this name. {lossOfReplacing(plan.replaces)}
        </div>
      )}
      <Facts size="sm" facts={factsOf(plan)} />
      <DataTable
        label="Planned configurations"
        rows={plan.configurations}
        columns={columnsOf(plan)}
        rowId={({ values, baseline }) => JSON.stringify([values, baseline])}
        rowProps={({ refusal }) => ({ "data-muted": refusal !== null })}
      />
    </div>
  );
}

/** Each reason once, with how many it meets. */
function Refusals({ plan: { configurations } }: { plan: ExperimentPlan }) {
  const reasons = new Map<string, number>();
  for (const { refusal } of configurations) if (refusal !== null) reasons.set(refusal, (reasons.get(refusal) ?? 0) + 1);
  if (reasons.size === 0) return null;
  const refused = configurations.filter(({ refusal }) => refusal !== null).length;
  return (
    <div className={classes.alert} role="note">
      {refused} of {plural(configurations.length, "configuration")} cannot run and will be listed with the reason:
      <ul>
        {[...reasons].map(([reason, times]) => (
          <li key={reason}>
            {reason}
            {times > 1 ? ` (${times} configurations)` : ""}
          </li>
        ))}
      </ul>
    </div>
  );
}

function factsOf({
  trials,
  refused,
  configurations,
  not_planned: notPlanned,
  seconds,
  by_earlier_jobs: byEarlier,
  slot_hours: hours,
  axes,
}: ExperimentPlan): Fact[] {
  return [
    { name: "Trials", value: count(trials - refused), hint: refused > 0 ? `and ${count(refused)} refused` : undefined },
    {
      name: "Configurations",
      value: count(configurations.length),
      hint:
        (axes.map(axisTitle).join(" × ") || "nothing varies") +
        (notPlanned > 0
          ? `; the first ${configurations.length - notPlanned} were planned, others may be refused yet`
          : ""),
    },
    {
      name: "Time",
      value: duration(seconds),
      hint:
        seconds === null
          ? "known once a step is"
          : byEarlier
            ? "by earlier jobs of this model, with today's slots"
            : "estimated, with today's slots",
    },
    { name: "Slot-hours", value: measured(hours), hint: hours === null ? undefined : "estimated" },
  ];
}

function columnsOf({ configurations, axes, refused }: ExperimentPlan): Column<PlannedConfiguration>[] {
  const paths = differing(configurations, axes);
  return [
    ...paths.map((path) => ({
      id: path,
      header: axisTitle(path),
      cell: ({ values }: PlannedConfiguration) => valueInWords(values[path]),
      value: ({ values }: PlannedConfiguration) =>
        typeof values[path] === "number" ? values[path] : valueInWords(values[path]),
    })),
    ...(paths.includes("world_size")
      ? []
      : [{ id: "ranks", header: "Ranks", cell: (one: PlannedConfiguration) => one.world_size, numeric: true }]),
    {
      id: "repeats",
      header: "Repeats",
      cell: ({ repeats, baseline }) => `${repeats}${baseline ? " (baseline)" : ""}`,
      numeric: true,
    },
    {
      id: "memory",
      header: "Memory per rank",
      cell: ({ memory_bytes: memory }) => bytes(memory),
      value: ({ memory_bytes: memory }) => memory,
      numeric: true,
    },
    ...(refused > 0 ? [REFUSAL] : []),
  ];
}

const REFUSAL: Column<PlannedConfiguration> = {
  id: "refusal",
  header: "Refused",
  prose: true,
  cell: ({ refusal }) => refusal ?? MISSING,
};
