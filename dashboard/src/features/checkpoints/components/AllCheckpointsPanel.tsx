import { TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { IconSearch } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { DocsLink } from "@/components/ui/DocsLink";
import { EmptyPage } from "@/components/ui/EmptyPage";
import { ErrorText } from "@/components/ui/ErrorText";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { age, bytes, count } from "@/lib/format";
import { useMe } from "@/lib/me";
import { refusal } from "@/lib/ownership";
import type { ListedCheckpoint } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { allCheckpointsQuery, usePin, type CheckpointFilter } from "../api/checkpoints";
import { atWork } from "../atWork";
import { DeleteDialog, Marks, RowActions } from "./CheckpointRow";
import classes from "./Checkpoints.module.css";
import { RestoreDialog } from "./RestoreDialog";

const TYPING_PAUSE_MS = 250;

interface Props {
  filter: CheckpointFilter;
  onSearch(q: string | undefined): void;
  onRestored(jobId: string): void;
}

/** The checkpoints of all jobs, the newest first. */
export function AllCheckpointsPanel({ filter, onSearch, onRestored }: Props) {
  const query = useQuery(allCheckpointsQuery(filter));
  const me = useMe();
  const pin = usePin();
  const now = useServerNow(10_000);
  const [restoring, setRestoring] = useState<ListedCheckpoint | null>(null);
  const [deleting, setDeleting] = useState<ListedCheckpoint | null>(null);
  const actions = (checkpoint: ListedCheckpoint) => (
    <RowActions
      checkpoint={checkpoint}
      refused={refusal(me, checkpoint)}
      onRestore={() => setRestoring(checkpoint)}
      onPin={() => pin.mutate(checkpoint)}
      onDelete={() => setDeleting(checkpoint)}
    />
  );
  return (
    <Panel
      label="Checkpoints"
      title={<Search q={filter.q} onSearch={onSearch} />}
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
        rows={8}
        isEmpty={(page) => page.items.length === 0}
        empty={filter.cursor !== undefined ? <EmptyPage /> : <NoCheckpoints isSearched={Boolean(filter.q)} />}
      >
        {(page) => (
          <DataTable label="Checkpoints" rows={page.items} columns={columnsAt(now, actions)} rowId={(row) => row.id} />
        )}
      </PanelStates>
      {restoring && (
        <RestoreDialog
          checkpoint={restoring}
          jobName={restoring.job_name}
          endsAt={null}
          notInPlace={refusal(me, restoring) ?? atWork(restoring.job_name, restoring.job_state, false)}
          onClose={() => setRestoring(null)}
          onRestored={onRestored}
        />
      )}
      {deleting && <DeleteDialog checkpoint={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

function NoCheckpoints({ isSearched }: { isSearched: boolean }) {
  return (
    <EmptyState title={isSearched ? "No job of that name has a checkpoint" : "No checkpoints yet"}>
      {isSearched
        ? "Search for another name, or clear the search."
        : "The saved states of all jobs will be here, to restore, pin or delete. A job saves one every 100 steps unless its spec says otherwise, and when it is paused."}{" "}
      <DocsLink page="reference/job_spec.html#checkpoint">When jobs save</DocsLink>
    </EmptyState>
  );
}

function Search({ q, onSearch }: { q: string | undefined; onSearch(q: string | undefined): void }) {
  const [text, setText] = useState(q ?? "");
  const search = useDebouncedCallback((typed: string) => onSearch(typed || undefined), TYPING_PAUSE_MS);
  return (
    <TextInput
      aria-label="Search checkpoints by job"
      placeholder="Search by job"
      value={text}
      w={220}
      leftSection={<IconSearch size={14} aria-hidden />}
      onChange={(event) => {
        setText(event.currentTarget.value);
        search(event.currentTarget.value);
      }}
    />
  );
}

function columnsAt(now: number, actions: (checkpoint: ListedCheckpoint) => ReactNode): Column<ListedCheckpoint>[] {
  return [
    {
      id: "job",
      header: "Job",
      cell: (row) => (
        <Link to="/jobs/$jobId" params={{ jobId: row.job_id }} search={{ tab: "checkpoints" } as never}>
          {row.job_name}
        </Link>
      ),
      value: (row) => row.job_name,
    },
    { id: "step", header: "Step", cell: (row) => count(row.step), value: (row) => row.step, numeric: true },
    { id: "state", header: "State", cell: (row) => <Marks checkpoint={row} /> },
    { id: "bytes", header: "Size", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
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
