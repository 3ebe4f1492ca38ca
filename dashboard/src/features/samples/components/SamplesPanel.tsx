import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { CopyAction } from "@/components/ui/CopyBox";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Facts } from "@/components/ui/Facts";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { count, MISSING, sentence } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import type { EpochUse, Job, SampleAudit, SampleRange } from "@/lib/types";
import { samplesQuery } from "../api/samples";
import classes from "./Samples.module.css";

/** Whether each sample was used exactly once, and by which steps. */
export function SamplesPanel({ job }: { job: Job }) {
  const query = useInfiniteQuery(samplesQuery(job.id, !isTerminal(job.state)));
  const audit = query.data?.pages[0];
  return (
    <Panel title="Samples" actions={audit?.recorded && <CopyAction value={audit.text} label="Copy verdict" />} flush>
      <PanelStates
        source={query}
        what="the audit of samples"
        isEmpty={({ pages }) => pages[0]!.steps === 0}
        empty={<NothingToAudit audit={audit} live={!isTerminal(job.state)} />}
      >
        {({ pages }) => (
          <Audit
            audit={pages[0]!}
            ranges={pages.flatMap((page) => page.ranges)}
            more={query.hasNextPage ? <More query={query} /> : null}
          />
        )}
      </PanelStates>
    </Panel>
  );
}

function NothingToAudit({ audit, live }: { audit: SampleAudit | undefined; live: boolean }) {
  return (
    <EmptyState title={audit?.recorded === false ? "Not recorded" : soFar("No step to audit", live)}>
      {audit && `${sentence(audit.text)}.`}
    </EmptyState>
  );
}

function More({ query }: { query: { isFetchingNextPage: boolean; fetchNextPage(): unknown } }) {
  return (
    <Button variant="default" loading={query.isFetchingNextPage} onClick={() => query.fetchNextPage()}>
      More ranges
    </Button>
  );
}

const EPOCHS: readonly Column<EpochUse>[] = [
  { id: "epoch", header: "Epoch", cell: ({ epoch }) => epoch, value: ({ epoch }) => epoch, width: 80 },
  { id: "samples", header: "Samples", cell: ({ samples }) => count(samples), numeric: true },
  { id: "used", header: "Used", cell: ({ used }) => count(used), numeric: true },
  { id: "twice", header: "Duplicates", cell: ({ duplicates }) => count(duplicates), numeric: true },
  { id: "complete", header: "", cell: ({ complete }) => (complete ? "complete" : "in progress"), numeric: true },
];

const RANGES: readonly Column<SampleRange>[] = [
  {
    id: "generation",
    header: "Generation",
    cell: ({ generation }) => generation,
    value: ({ generation }) => generation,
    width: 110,
  },
  {
    id: "steps",
    header: "Steps",
    cell: ({ first_step: first, last_step: last }) => `${count(first)} to ${count(last)}`,
    value: ({ first_step }) => first_step,
    numeric: true,
  },
  {
    id: "places",
    header: "Sample index range",
    cell: ({ first_sample: first, samples }) => `${count(first)} to ${count(first + samples - 1)}`,
    value: ({ first_sample }) => first_sample,
    numeric: true,
  },
  {
    id: "samples",
    header: "Samples",
    cell: ({ samples }) => count(samples),
    value: ({ samples }) => samples,
    numeric: true,
  },
  { id: "epoch", header: "Epoch", cell: ({ epoch }) => epoch ?? MISSING, numeric: true },
];

function Audit({ audit, ranges, more }: { audit: SampleAudit; ranges: readonly SampleRange[]; more: React.ReactNode }) {
  return (
    <>
      <div className={classes.summary}>
        <div className={classes.verdict}>
          <Verdict audit={audit} />
          <span>{sentence(audit.text)}</span>
        </div>
        {audit.findings.length > 0 && (
          <ul className={classes.findings} aria-label="Findings">
            {audit.findings.map((finding) => (
              <li key={finding}>{finding}</li>
            ))}
          </ul>
        )}
        <Facts size="sm" facts={factsOf(audit)} />
      </div>
      {audit.epochs.length > 0 && (
        <div className={classes.epochs}>
          <DataTable
            label="Samples by epoch"
            rows={audit.epochs}
            columns={EPOCHS}
            rowId={({ epoch }) => String(epoch)}
          />
        </div>
      )}
      <DataTable
        label="Ranges of samples by step"
        rows={ranges}
        columns={RANGES}
        rowId={({ generation, first_step }) => `${generation}/${first_step}`}
      />
      {more && <div className={classes.more}>{more}</div>}
    </>
  );
}

function Verdict({ audit: { exactly_once: once } }: { audit: SampleAudit }) {
  if (once === null)
    return (
      <StateBadge state="unknown" tone="neutral">
        not recorded
      </StateBadge>
    );
  return once ? (
    <StateBadge state="once" tone="good">
      exactly once
    </StateBadge>
  ) : (
    <StateBadge state="not-once" tone="bad">
      not exactly once
    </StateBadge>
  );
}

function factsOf({
  first_step: first,
  last_step: last,
  samples,
  duplicates,
  missing,
  discarded_steps: discarded,
}: SampleAudit) {
  return [
    { name: "Steps", value: first === null || last === null ? MISSING : `${count(first)} to ${count(last)}` },
    { name: "Samples used", value: count(samples) },
    { name: "Duplicates", value: count(duplicates) },
    { name: "Skipped", value: count(missing) },
    { name: "Discarded steps", value: count(discarded) },
  ];
}
