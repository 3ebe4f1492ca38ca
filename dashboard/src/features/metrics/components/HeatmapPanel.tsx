import { Button, Select, Switch } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { IconZoomReset } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { MISSING, title } from "@/lib/format";
import { soFar } from "@/lib/jobs";
import type { Job } from "@/lib/types";
import { heatmapQuery } from "../api/heatmap";
import { ownNames, unitOf } from "../catalog";
import {
  CARD_PREFIX,
  overMedian,
  ranksOf,
  sentenceOf,
  summarizeRows,
  type RankGrid,
  type RowSummary,
} from "../heatmap";
import { CARD_READINGS, readingTitle } from "../readings";
import type { StepRange } from "../stepRange";
import { readingUnit, withUnit, type Unit } from "../units";
import classes from "./Metrics.module.css";
import { HeatmapCanvas } from "./HeatmapCanvas";
import { RankLines, type Lines } from "./RankLines";

interface Props {
  job: Job;
  /** Every metric that the job has reported. */
  names: readonly string[];
  live: boolean;
  range: StepRange | null;
  onZoom(range: StepRange | null): void;
}

const BUSY = "busy_seconds";
/** Of ranks that wait for each other all steps take as long: the time without waiting tells which one is slow. */
const MEASURES: readonly { value: string; label: string }[] = [
  { value: BUSY, label: "Busy time (step without waiting)" },
  { value: "step_seconds", label: "Step time" },
  { value: "data_seconds", label: "Data" },
  { value: "forward_seconds", label: "Forward" },
  { value: "backward_seconds", label: "Backward" },
  { value: "communication_seconds", label: "Exposed communication" },
  { value: "optimizer_seconds", label: "Optimizer" },
  { value: "memory_bytes", label: "Memory" },
  { value: "peak_memory_bytes", label: "Peak memory" },
];

/** Readings of each rank's own card. Counts of errors only grow: they are shown on the node's page. */
const OF_CARDS = CARD_READINGS.filter((name) => !name.startsWith("ecc_")).map((name) => ({
  value: CARD_PREFIX + name,
  label: `Card: ${readingTitle(name)}`,
}));

/** One metric of every rank at every step: a straggler is a row that stands out, a stall a column. */
export function HeatmapPanel({ job, names, live, range, onZoom }: Props) {
  const hasCards = (job.ranks ?? []).some(({ card }) => card != null);
  const choices = [...measuresOf(names, job.spec?.script != null), ...(hasCards && names.length > 0 ? OF_CARDS : [])];
  const [chosen, setChosen] = useState<string | null>(null);
  const [highest, setHighest] = useState(false);
  const [relative, setRelative] = useState(false);
  const [asTable, setAsTable] = useState(false);
  const [lines, setLines] = useState<Lines>("slowest");
  const [picked, setPicked] = useState<readonly number[]>([]);
  const name = chosen ?? choices[0]?.value ?? BUSY;
  const derived = name === BUSY;
  const request = { jobId: job.id, name, highest: highest && !derived, range };
  const query = useQuery({
    ...heatmapQuery(request, live),
    enabled: choices.length > 0,
    placeholderData: keepPreviousData,
  });
  if (choices.length === 0) return null;
  const nodes = new Map((job.ranks ?? []).map((rank) => [rank.rank, rank.node_name]));
  const pick = (row: number) =>
    setPicked(picked.includes(row) ? picked.filter((each) => each !== row) : [...picked, row].slice(-MOST_PICKED));
  return (
    <Panel
      title="Heat map"
      actions={
        <>
          {range !== null && (
            <Button
              size="compact-xs"
              variant="default"
              leftSection={<IconZoomReset size={13} />}
              onClick={() => onZoom(null)}
            >
              Whole run
            </Button>
          )}
          <Select
            aria-label="Metric of the heat map"
            w={272}
            value={name}
            data={choices}
            allowDeselect={false}
            onChange={setChosen}
          />
          <Switch
            label="Highest step"
            disabled={derived}
            checked={highest && !derived}
            onChange={(event) => setHighest(event.currentTarget.checked)}
          />
          <Switch
            label="Over the median"
            title="Each cell over the median of all ranks in its steps"
            checked={relative}
            onChange={(event) => setRelative(event.currentTarget.checked)}
          />
          <TableToggle pressed={asTable} onChange={setAsTable} what="Heat map" />
        </>
      }
      flush
    >
      <PanelStates
        source={query}
        what="the heat map"
        rows={6}
        isEmpty={({ rows }) => rows === 0}
        empty={
          <EmptyState title={soFar("No values", live)}>No rank has reported this metric in these steps.</EmptyState>
        }
      >
        {(grid) => (
          <Found
            {...{ grid, relative, asTable, lines, picked, nodes, onZoom }}
            unit={name.startsWith(CARD_PREFIX) ? readingUnit(grid.unit) : derived ? "s" : unitOf(name, "")}
            onLines={setLines}
            onPick={pick}
          />
        )}
      </PanelStates>
    </Panel>
  );
}

/** As many as have a colour of their own beside the band's. */
const MOST_PICKED = 5;

/** What ranks report for themselves: the parts of a step, memory, and what a user's code logs, of a script its loss too. */
function measuresOf(names: readonly string[], script: boolean): { value: string; label: string }[] {
  const own = script && names.includes("loss") ? ["loss", ...ownNames(names)] : ownNames(names);
  return [
    ...MEASURES.filter(({ value }) => names.includes(value === BUSY ? "step_seconds" : value)),
    ...own.map((name) => ({ value: name, label: name })),
  ];
}

interface FoundProps {
  grid: RankGrid;
  unit: Unit;
  /** The map shows cells over the median of their steps. */
  relative: boolean;
  asTable: boolean;
  lines: Lines;
  picked: readonly number[];
  nodes: ReadonlyMap<number, string>;
  onLines(lines: Lines): void;
  onPick(row: number): void;
  onZoom(range: StepRange | null): void;
}

function Found({ grid, unit, relative, asTable, lines, picked, nodes, onLines, onPick, onZoom }: FoundProps) {
  const drawn = useMemo(
    () => (relative ? { grid: overMedian(grid), unit: "times the median" as const } : { grid, unit }),
    [grid, unit, relative],
  );
  const rows = summarizeRows(grid);
  const nodeOf = (rank: number) => nodes.get(rank) ?? null;
  const sentence = sentenceOf(grid, rows, unit, nodeOf);
  if (asTable)
    return (
      <>
        <RowTable {...{ grid, rows, unit, nodeOf }} />
        <p className={classes.summary}>{sentence}</p>
      </>
    );
  return (
    <>
      <HeatmapCanvas {...{ ...drawn, sentence, nodeOf, onZoom }} onRow={onPick} />
      <p className={classes.summary}>{sentence}</p>
      <RankLines {...{ grid, rows, unit, lines, picked, nodeOf, onLines, onZoom }} />
    </>
  );
}

function RowTable({
  grid,
  rows,
  unit,
  nodeOf,
}: {
  grid: RankGrid;
  rows: readonly RowSummary[];
  unit: Unit;
  nodeOf(rank: number): string | null;
}) {
  const columns: Column<RowSummary>[] = [
    { id: "rank", header: "Rank", cell: ({ row }) => ranksOf(grid, row), value: ({ row }) => row, width: 100 },
    { id: "node", header: "Node", cell: ({ row }) => (grid.ranksPerRow === 1 ? (nodeOf(row) ?? MISSING) : MISSING) },
    { id: "mean", header: "Mean", cell: ({ mean }) => withUnit(mean, unit), value: ({ mean }) => mean, numeric: true },
    {
      id: "ratio",
      header: "Over the median",
      cell: ({ ratio }) => (Number.isNaN(ratio) ? MISSING : `${ratio.toFixed(2)} ×`),
      value: ({ ratio }) => ratio,
      numeric: true,
    },
    {
      id: "highest",
      header: "Highest cell",
      cell: ({ highest }) => withUnit(highest, unit),
      value: ({ highest }) => highest,
      numeric: true,
    },
  ];
  return (
    <DataTable label={`${title(grid.name)} by rank`} rows={rows} columns={columns} rowId={({ row }) => String(row)} />
  );
}
