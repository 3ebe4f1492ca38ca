import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPin, IconPinnedOff, IconTrash } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { asApiError } from "@/lib/errors";
import { age, bytes, count, measured, plural, shortTime } from "@/lib/format";
import { isTerminal, newestSeen, soFar } from "@/lib/jobs";
import { useRefusal } from "@/lib/ownership";
import type { Checkpoint, Job } from "@/lib/types";
import { useNow } from "@/lib/useNow";
import { checkpointsQuery, useDelete, usePin } from "../api/checkpoints";
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
  const pin = usePin(jobId);
  const remove = useDelete(jobId);
  const now = useNow(10_000);
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  const [deleting, setDeleting] = useState<Checkpoint | null>(null);
  const actions = (checkpoint: Checkpoint) => (
    <RowActions
      checkpoint={checkpoint}
      refused={refused}
      onRestore={() => setRestoring(checkpoint)}
      onPin={() => pin.mutate(checkpoint)}
      onDelete={() => {
        remove.reset();
        setDeleting(checkpoint);
      }}
    />
  );
  return (
    <Panel
      title="Checkpoints"
      flush
      actions={
        pin.error && (
          <span role="alert" className={classes.error}>
            {asApiError(pin.error).message}
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
          onClose={() => setRestoring(null)}
          onRestored={onRestored}
        />
      )}
      {deleting && (
        <Confirm
          opened
          title={`Delete the checkpoint of step ${count(deleting.step)}?`}
          verb="Delete checkpoint"
          busy={remove.isPending}
          error={remove.error}
          onClose={() => setDeleting(null)}
          onConfirm={() => remove.mutate(deleting, { onSuccess: () => setDeleting(null) })}
        >
          <DeletionLoss checkpoint={deleting} />
        </Confirm>
      )}
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
      Checkpoints are saved as the spec's checkpoint section says, and on pause.
    </EmptyState>
  );
}

function DeletionLoss({ checkpoint }: { checkpoint: Checkpoint }) {
  const facts = [
    `${bytes(checkpoint.bytes)} of step ${count(checkpoint.step)} are removed from disk and cannot be restored.`,
    checkpoint.latest && "It is the newest one: a restart would fall back to an older step.",
    checkpoint.best && "It is the best one of this job.",
    checkpoint.pinned && "It is pinned.",
    checkpoint.used_by.length > 0 &&
      `${plural(checkpoint.used_by.length, "unfinished job")} started from it: ${checkpoint.used_by.map(({ job_name }) => job_name).join(", ")}.`,
  ].filter(Boolean);
  return (
    <>
      {facts.map((fact) => (
        <p key={String(fact)} className={classes.fact}>
          {fact}
        </p>
      ))}
    </>
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

function WriteTime({ checkpoint: { write_seconds, slowdown } }: { checkpoint: Checkpoint }) {
  if (slowdown == null) return shortTime(write_seconds);
  return (
    <span title="How long steps took while this checkpoint was written">
      {shortTime(write_seconds)}, steps {slowdown.toFixed(2)}× as long
    </span>
  );
}

function Marks({ checkpoint: { state, latest, best, pinned, deleted_next, damage } }: { checkpoint: Checkpoint }) {
  return (
    <span className={classes.marks} title={damage ?? undefined}>
      <StateBadge state={state}>{state === "committed" ? "verified" : state}</StateBadge>
      {latest && (
        <StateBadge state="latest" tone="active">
          latest
        </StateBadge>
      )}
      {best && (
        <StateBadge state="best" tone="good">
          best
        </StateBadge>
      )}
      {pinned && <StateBadge state="pinned">pinned</StateBadge>}
      {deleted_next && (
        <StateBadge state="next" tone="warn">
          next to be deleted
        </StateBadge>
      )}
    </span>
  );
}

interface RowProps {
  checkpoint: Checkpoint;
  /** Why this user may not delete or unpin it; null if allowed. */
  refused: string | null;
  onRestore(): void;
  onPin(): void;
  onDelete(): void;
}

function RowActions({ checkpoint, refused, onRestore, onPin, onDelete }: RowProps) {
  const { step, state, pinned } = checkpoint;
  if (state === "deleted" || state === "deleting") return null;
  const pinLabel = `${pinned ? "Unpin" : "Pin"} the checkpoint of step ${step}`;
  return (
    <span className={classes.actions}>
      {(state === "committed" || state === "superseded") && (
        <Button size="compact-xs" variant="default" onClick={onRestore} aria-label={`Restore from step ${step}`}>
          Restore
        </Button>
      )}
      <Tooltip label={pinned ? (refused ?? "Unpin") : "Pin: keep it whatever the retention"}>
        <ActionIcon
          variant="subtle"
          color="gray"
          size="sm"
          aria-label={pinLabel}
          disabled={pinned && refused != null}
          onClick={onPin}
        >
          {pinned ? <IconPinnedOff size={15} /> : <IconPin size={15} />}
        </ActionIcon>
      </Tooltip>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="sm"
        aria-label={`Delete the checkpoint of step ${step}`}
        disabled={refused != null}
        title={refused ?? undefined}
        onClick={onDelete}
      >
        <IconTrash size={15} />
      </ActionIcon>
    </span>
  );
}
