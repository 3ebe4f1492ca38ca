import { ActionIcon, Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { IconTrash } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { bytes } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { StoredJob } from "@/lib/types";
import { storageQuery, useDataDeletion } from "../api/storage";
import classes from "./Storage.module.css";

/** The jobs of which most is stored, and a way to delete it once they have ended. */
export function LargestJobs() {
  const query = useQuery(storageQuery);
  const [chosen, setChosen] = useState<StoredJob | null>(null);
  const actions = (job: StoredJob) => (job.ended ? <DeleteButton job={job} onClick={() => setChosen(job)} /> : null);
  return (
    <Panel title="Largest jobs" flush>
      <PanelStates
        source={query}
        what="the largest jobs"
        rows={5}
        isEmpty={({ largest_jobs: jobs }) => jobs.length === 0}
        empty={<EmptyState title="No job data stored yet">Points and log lines appear here while jobs run.</EmptyState>}
      >
        {({ largest_jobs: jobs }) => (
          <DataTable label="Largest jobs" rows={jobs} columns={columns(actions)} rowId={({ job_id: id }) => id} />
        )}
      </PanelStates>
      {chosen && <DeleteDialog job={chosen} onClose={() => setChosen(null)} />}
    </Panel>
  );
}

function DeleteButton({ job, onClick }: { job: StoredJob; onClick(): void }) {
  return (
    <Guarded refused={useRoleRefusal("member")} hint="Delete its data">
      <ActionIcon variant="subtle" color="red" aria-label={`Delete the data of ${job.name}`} onClick={onClick}>
        <IconTrash size={15} />
      </ActionIcon>
    </Guarded>
  );
}

function DeleteDialog({ job, onClose }: { job: StoredJob; onClose(): void }) {
  const [checkpoints, setCheckpoints] = useState(false);
  const deletion = useDataDeletion();
  return (
    <Confirm
      opened
      title={`Delete the data of ${job.name}?`}
      verb="Delete data"
      busy={deletion.isPending}
      error={deletion.error}
      onClose={onClose}
      onConfirm={() => deletion.mutate({ jobId: job.job_id, checkpoints }, { onSuccess: onClose })}
    >
      The points, curves and log lines ({bytes(job.bytes)}), traces, gradients, media and files of{" "}
      <strong>{job.name}</strong> are deleted for good. The job stays in the list, with its spec, its history and how it
      ended.
      <Checkbox
        className={classes.choice}
        label="Delete its checkpoints as well"
        checked={checkpoints}
        onChange={(event) => setCheckpoints(event.currentTarget.checked)}
      />
    </Confirm>
  );
}

function columns(actions: (job: StoredJob) => ReactNode): Column<StoredJob>[] {
  return [
    {
      id: "name",
      header: "Job",
      cell: ({ job_id: jobId, name }) => (
        <Link to="/jobs/$jobId" params={{ jobId }} search={{}}>
          {name}
        </Link>
      ),
      value: ({ name }) => name,
    },
    { id: "state", header: "State", cell: ({ state }) => <StateBadge state={state} />, value: ({ state }) => state },
    { id: "bytes", header: "Size", cell: (job) => bytes(job.bytes), value: (job) => job.bytes, numeric: true },
    { id: "actions", header: "", cell: actions, numeric: true },
  ];
}
