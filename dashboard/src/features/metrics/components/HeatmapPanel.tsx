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
import { unitOf } from "../catalog";
import { overMedian, ranksOf, sentenceOf, summarizeRows, type RankGrid, type RowSummary } from "../heatmap";
import { BUSY, CARD_PREFIX, type Measure } from "../measures";
import { MOST_LINES, type Lines } from "../rankLines";
import type { StepRange } from "../stepRange";
import { readingUnit, withUnit, type Unit } from "../units";
import classes from "./Metrics.module.css";
import { HeatmapCanvas } from "./HeatmapCanvas";
import { RankLines } from "./RankLines";

/** The metric by which ranks are compared, and which of them have a line, as the URL says it. */
export interface HeatmapView {
  measure?: string;
  lines?: Lines;
}

interface Props {
  job: Job;
  measures: readonly Measure[];
  view: HeatmapView;
  live: boolean;
  range: StepRange | null;
  onView(change: HeatmapView): void;
  onZoom(range: StepRange | null): void;
}

/** One metric of every rank at every step: a straggler is a row that stands out, a stall a column. */
export function HeatmapPanel({ job, measures, view, live, range, onView, onZoom }: Props) {
  const [highest, setHighest] = useState(false);
  const [relative, setRelative] = useState(false);
  const [asTable, setAsTable] = useState(false);
  const [picked, setPicked] = useState<readonly number[]>([]);
  const name = view.measure ?? measures[0]?.name;
  const derived = name === BUSY;
  const isKnown = measures.some((measure) => measure.name === name);
  const request = { jobId: job.id, name: name ?? BUSY, highest: highest && !derived, range };
  const query = useQuery({ ...heatmapQuery(request, live), enabled: isKnown, placeholderData: keepPreviousData });
  if (name === undefined) return null;
  const nodes = new Map((job.ranks ?? []).map((rank) => [rank.rank, rank.node_name]));
  const pick = (row: number) =>
    setPicked(picked.includes(row) ? picked.filter((each) => each !== row) : [...picked, row].slice(-MOST_LINES));
  const unreported = (
    <EmptyState title={soFar("No values", live)}>
      No rank has reported this metric{range && " in these steps"}.{measures.length > 0 && " Choose another one above."}
    </EmptyState>
  );
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
            data={choicesOf(measures, name)}
            allowDeselect={false}
            onChange={(measure) => onView({ measure: measure ?? undefined })}
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
      {isKnown ? (
        <PanelStates source={query} what="the heat map" rows={6} isEmpty={({ rows }) => rows === 0} empty={unreported}>
          {(grid) => (
            <div className={classes.replaceable} aria-busy={query.isPlaceholderData || undefined}>
              <Found
                {...{ grid, relative, asTable, picked, nodes, onZoom }}
                unit={shownUnit(grid)}
                lines={view.lines ?? "slowest"}
                onLines={(lines) => onView({ lines: lines === "slowest" ? undefined : lines })}
                onPick={pick}
              />
            </div>
          )}
        </PanelStates>
      ) : (
        unreported
      )}
    </Panel>
  );
}

/** A metric of the URL that is not among the measures is a choice too, so that the panel says what it has no values of. */
function choicesOf(measures: readonly Measure[], chosen: string) {
  const choices = measures.map(({ name, label }) => ({ value: name, label }));
  return choices.some(({ value }) => value === chosen) ? choices : [...choices, { value: chosen, label: chosen }];
}

/** By the grid's own name: while another metric is fetched, the map before it stands. */
function shownUnit({ name, unit }: RankGrid): Unit {
  return name.startsWith(CARD_PREFIX) ? readingUnit(unit) : name === BUSY ? "s" : unitOf(name, "");
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
      id: "worst",
      header: grid.worst === "lowest" ? "Lowest cell" : "Highest cell",
      cell: ({ worst }) => withUnit(worst, unit),
      value: ({ worst }) => worst,
      numeric: true,
    },
  ];
  return (
    <DataTable label={`${title(grid.name)} by rank`} rows={rows} columns={columns} rowId={({ row }) => String(row)} />
  );
}
