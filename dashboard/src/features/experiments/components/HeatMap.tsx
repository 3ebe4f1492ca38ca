import { Select } from "@mantine/core";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { MISSING } from "@/lib/format";
import type { Analysis, Configuration } from "@/lib/types";
import { differing } from "../fields";
import { axisTitle, figureNamed, figuresOf, titleOf, valueInWords, type FigureSpec } from "../figures";
import { heatGrid, heatSentence, type HeatCell } from "../heat";
import { Figure } from "./Figure";
import { HeatDrawing } from "./HeatDrawing";

export interface HeatView {
  x?: string;
  y?: string;
  figure?: string;
}

interface Props {
  analysis: Analysis;
  metric: string;
  /** Which way the experiment's own metric is better. */
  goal: "minimize" | "maximize";
  view: HeatView;
  onView(view: HeatView): void;
}

/** One figure over two of the values that vary. */
export function HeatMap({ analysis, metric, goal, view, onView }: Props) {
  const run = analysis.configurations.filter(({ refusal }) => refusal === null);
  const paths = differing(run, analysis.axes);
  const figures = figuresOf(run);
  const x = chosenOf(paths, view.x, paths[0]);
  const y = chosenOf(
    paths.filter((path) => path !== x),
    view.y,
    paths.find((path) => path !== x),
  );
  const figure = figures.find(({ name }) => name === view.figure) ?? usual(figures, run);
  if (!x || !y || !figure)
    return (
      <Figure
        title="Heat map"
        sentence=""
        table={null}
        empty={figure ? "A heat map needs two values that vary." : "No trial has ended yet."}
      >
        {null}
      </Figure>
    );
  const better = figure.better ?? (goal === "minimize" ? "less" : "more");
  const grid = heatGrid(run, x, y, figure);
  const title = titleOf(figure, metric);
  const sentence = heatSentence(grid, x, y, figure, title, better);
  return (
    <Figure
      title="Heat map"
      tools={
        <>
          <Select
            aria-label="Figure of the heat map"
            w={180}
            allowDeselect={false}
            data={figures.map((one) => ({ value: one.name, label: titleOf(one, metric) }))}
            value={figure.name}
            onChange={(name) => onView({ ...view, figure: name ?? undefined })}
          />
          <AxisSelect
            label="Across"
            paths={paths}
            value={x}
            onChange={(path) => onView({ ...view, x: path, y: path === y ? x : y })}
          />
          <AxisSelect
            label="Down"
            paths={paths}
            value={y}
            onChange={(path) => onView({ ...view, y: path, x: path === x ? y : x })}
          />
        </>
      }
      sentence={sentence}
      table={
        <DataTable label="Heat map values" rows={grid.cells} columns={columnsOf(x, y, figure, title)} rowId={idOf} />
      }
    >
      <HeatDrawing grid={grid} x={x} y={y} figure={figure} better={better} label={`Heat map: ${sentence}`} />
    </Figure>
  );
}

function chosenOf(paths: readonly string[], wanted: string | undefined, usually: string | undefined) {
  return wanted !== undefined && paths.includes(wanted) ? wanted : usually;
}

/** Speed where ranks vary; else the experiment asks for its metric. */
function usual(figures: readonly FigureSpec[], run: readonly Configuration[]): FigureSpec | undefined {
  const asked = new Set(run.map(({ world_size: ranks }) => ranks)).size > 1 ? "samples_per_second" : "metric";
  return figures.find(({ name }) => name === asked) ?? figureNamed(figures[0]?.name);
}

interface AxisSelectProps {
  label: string;
  paths: readonly string[];
  value: string;
  onChange(path: string): void;
}

function AxisSelect({ label, paths, value, onChange }: AxisSelectProps) {
  return (
    <Select
      aria-label={`${label}: axis of the heat map`}
      w={200}
      allowDeselect={false}
      data={paths.map((path) => ({ value: path, label: `${label}: ${axisTitle(path)}` }))}
      value={value}
      onChange={(path) => path && onChange(path)}
    />
  );
}

const idOf = ({ x, y }: HeatCell) => JSON.stringify([x, y]);

function columnsOf(x: string, y: string, figure: FigureSpec, title: string): Column<HeatCell>[] {
  return [
    { id: "y", header: axisTitle(y), cell: (cell) => valueInWords(cell.y), value: (cell) => sortable(cell.y) },
    { id: "x", header: axisTitle(x), cell: (cell) => valueInWords(cell.x), value: (cell) => sortable(cell.x) },
    {
      id: "value",
      header: title,
      cell: ({ value }) => (value === null ? MISSING : figure.write(value)),
      value: ({ value }) => value,
      numeric: true,
    },
    { id: "count", header: "Configurations", cell: ({ count }) => count, value: ({ count }) => count, numeric: true },
  ];
}

function sortable(value: unknown): string | number {
  return typeof value === "number" ? value : valueInWords(value);
}
