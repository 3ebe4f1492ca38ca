import { DataTable, type Column } from "@/components/ui/DataTable";
import { meshColumns } from "@/components/ui/meshColumns";
import { EmptyState } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, count, dateTime, duration, MISSING } from "@/lib/format";
import { soFar } from "@/lib/jobs";
import type { Generation, Rank } from "@/lib/types";

const RANK: Column<Rank> = {
  id: "rank",
  header: "Rank",
  cell: (rank) => rank.rank,
  value: (rank) => rank.rank,
  width: 80,
};

const CARD: Column<Rank> = {
  id: "card",
  header: "Card",
  cell: (rank) => rank.card ?? MISSING,
  value: (rank) => rank.card ?? -1,
  numeric: true,
};

const factsOf = (script: boolean, cards: boolean): readonly Column<Rank>[] => [
  { id: "state", header: "State", cell: (rank) => <StateBadge state={rank.state} />, value: (rank) => rank.state },
  { id: "node", header: "Node", cell: (rank) => rank.node_name, value: (rank) => rank.node_name },
  { id: "slot", header: "Slot", cell: (rank) => rank.slot, value: (rank) => rank.slot, numeric: true },
  ...(cards ? [CARD] : []),
  { id: "pid", header: "PID", cell: (rank) => rank.pid ?? MISSING, numeric: true },
  {
    id: "step",
    header: "Last step",
    cell: (rank) => (script && rank.step === 0 ? MISSING : count(rank.step)),
    value: (rank) => rank.step,
    numeric: true,
  },
  {
    id: "beat",
    header: "Heartbeat",
    cell: (rank) => beat(rank),
    value: (rank) => rank.heartbeat_age_seconds ?? Infinity,
    numeric: true,
  },
  { id: "exit", header: "Exit", cell: (rank) => rank.signal ?? rank.exit_code ?? MISSING, numeric: true },
];

const GENERATIONS: readonly Column<Generation>[] = [
  { id: "generation", header: "Generation", cell: (row) => row.generation, value: (row) => row.generation, width: 110 },
  { id: "world", header: "Ranks", cell: (row) => row.world_size, numeric: true },
  {
    id: "start",
    header: "From step",
    cell: (row) => (row.start_step === null ? MISSING : count(row.start_step)),
    numeric: true,
  },
  { id: "started", header: "Started", cell: (row) => dateTime(row.started_at) },
  {
    id: "first",
    header: "First step after",
    cell: (row) => secondsBetween(row.started_at, row.first_step_at),
    numeric: true,
  },
  { id: "lasted", header: "Lasted", cell: (row) => secondsBetween(row.started_at, row.ended_at), numeric: true },
  { id: "end", header: "Ended by", cell: (row) => row.end_reason?.replaceAll("_", " ") ?? MISSING },
];

function beat(rank: Rank): string {
  return rank.heartbeat_age_seconds == null ? MISSING : `${age(rank.heartbeat_age_seconds * 1000)} ago`;
}

function secondsBetween(from: string, to: string | null): string {
  return to ? duration((Date.parse(to) - Date.parse(from)) / 1000) : MISSING;
}

/** A script may tell of no steps: 0 then says nothing. */
export function RanksTable({ ranks, live, script }: { ranks: readonly Rank[]; live: boolean; script: boolean }) {
  if (ranks.length === 0)
    return (
      <EmptyState title={soFar("No ranks", live)}>
        {live ? "Ranks appear as soon as the job gets its slots." : "The job ended before it got slots."}
      </EmptyState>
    );
  return (
    <DataTable
      label="Ranks"
      rows={ranks}
      columns={[
        RANK,
        ...meshColumns(ranks),
        ...factsOf(
          script,
          ranks.some(({ card }) => card !== null),
        ),
      ]}
      rowId={(rank) => String(rank.rank)}
      rowProps={(rank) => ({ "data-muted": rank.state === "exited" })}
    />
  );
}

interface GenerationsProps {
  generations: readonly Generation[];
  live: boolean;
}

export function GenerationsTable({ generations, live }: GenerationsProps) {
  if (generations.length === 0)
    return (
      <EmptyState title={live ? "Not started yet" : "Never started"}>
        Each start, resume and recovery adds a generation.
      </EmptyState>
    );
  return (
    <DataTable label="Generations" rows={generations} columns={GENERATIONS} rowId={(row) => String(row.generation)} />
  );
}
