import { Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { DocsLink } from "@/components/ui/DocsLink";
import { ErrorText } from "@/components/ui/ErrorText";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { age, bytes, count, measured, shortTime } from "@/lib/format";
import { isTerminal, newestSeen, soFar } from "@/lib/jobs";
import { useRefusal } from "@/lib/ownership";
import type { Checkpoint, Job } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { checkpointsQuery, usePin } from "../api/checkpoints";
import { atWork } from "../atWork";
import { DeleteDialog, Marks, RowActions } from "./CheckpointRow";
import classes from "./Checkpoints.module.css";
import { RestoreDialog } from "./RestoreDialog";

interface Props {
  job: Job;
  onRestored(jobId: string): void;
}

export function CheckpointsPanel({ job, onRestored }: Props) {
  const jobId = job.id;
  const refused = useRefusal(job);
  const query = useQuery(checkpointsQuery(jobId));
  const pin = usePin();
  const now = useServerNow(10_000);
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  const [deleting, setDeleting] = useState<Checkpoint | null>(null);
  const actions = (checkpoint: Checkpoint) => (
    <RowActions
      checkpoint={checkpoint}
      refused={refused}
      onRestore={() => setRestoring(checkpoint)}
      onPin={() => pin.mutate(checkpoint)}
      onDelete={() => setDeleting(checkpoint)}
    />
  );
  return (
    <Panel
      title="Checkpoints"
      flush
      actions={
        pin.error && (
          <span role="alert" className={classes.error}>
            <ErrorText error={pin.error} />
          </span>
        )
      }
    >
      <PanelStates
        source={query}
        what="the checkpoints"
        isEmpty={(page) => page.items.length === 0}
        empty={<NoCheckpoint job={job} />}
      >
        {(page) => (
          <DataTable
            label="Checkpoints"
            rows={page.items}
            columns={columnsAt(now, actions)}
            rowId={(row) => row.id}
            rowProps={(row) => ({ "data-muted": row.state === "deleted" })}
          />
        )}
      </PanelStates>
      {restoring && (
        <RestoreDialog
          checkpoint={restoring}
          jobName={job.name}
          endsAt={job.progress.total_steps ?? null}
          notInPlace={refused ?? atWork(job.name, job.state, job.data_removal != null)}
          onClose={() => setRestoring(null)}
          onRestored={onRestored}
        />
      )}
      {deleting && <DeleteDialog checkpoint={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

function NoCheckpoint({ job: { spec, state, progress } }: { job: Job }) {
  if (spec?.script)
    return (
      <EmptyState title="The script saves by itself">
        Paceline keeps no checkpoint of a script.{newestSeen(progress)}
      </EmptyState>
    );
  return (
    <EmptyState title={soFar("No checkpoint", !isTerminal(state))}>
      They are saved every <code>checkpoint.every_steps</code> steps of the spec, at the end and on pause. Restore one
      to continue from it. <DocsLink page="reference/job_spec.html#checkpoint">When jobs save</DocsLink>
    </EmptyState>
  );
}

function columnsAt(now: number, actions: (checkpoint: Checkpoint) => ReactNode): Column<Checkpoint>[] {
  return [
    { id: "step", header: "Step", cell: (row) => count(row.step), value: (row) => row.step, numeric: true, width: 90 },
    { id: "state", header: "State", cell: (row) => <Marks checkpoint={row} /> },
    {
      id: "metrics",
      header: "Metrics",
      prose: true,
      cell: (row) =>
        Object.entries(row.metrics)
          .map(([name, value]) => `${name} ${measured(value)}`)
          .join(", "),
    },
    { id: "bytes", header: "Size", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
    { id: "stall", header: "Blocking time", cell: (row) => shortTime(row.stall_seconds), numeric: true },
    { id: "write", header: "Write time", cell: (row) => <WriteTime checkpoint={row} />, numeric: true },
    { id: "generation", header: "Generation", cell: (row) => row.generation, numeric: true },
    {
      id: "age",
      header: "Saved",
      cell: (row) => `${age(now - Date.parse(row.created_at))} ago`,
      value: (row) => row.created_at,
      numeric: true,
    },
    { id: "actions", header: "", cell: actions, numeric: true },
  ];
}

const EVENTS = { hover: true, focus: true, touch: true };

function WriteTime({ checkpoint: { write_seconds, slowdown } }: { checkpoint: Checkpoint }) {
  if (slowdown == null) return shortTime(write_seconds);
  return (
    <Tooltip label={`Steps took ${slowdown.toFixed(2)}x as long while this checkpoint was written`} events={EVENTS}>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what has a tooltip must be reachable by keyboard */}
      <span tabIndex={0} className={classes.hinted}>
        {shortTime(write_seconds)}
      </span>
    </Tooltip>
  );
}
