import { useState, type KeyboardEvent } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import type { Analysis, Configuration } from "@/lib/types";
import { Chart, type Area } from "../charts/Chart";
import { pathThrough } from "../charts/scale";
import { coordinateAxes, type CoordinateAxis } from "../coordinates";
import { differing } from "../fields";
import { axisTitle, figuresOf, titleOf, valueInWords, written } from "../figures";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

const HEIGHT = 270;

/** Every configuration as a line across all that varies and what came of it. */
export function ParallelCoordinates({ analysis, metric }: { analysis: Analysis; metric: string }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const run = analysis.configurations.filter(({ refusal, completed }) => refusal === null && completed > 0);
  const axes = coordinateAxes(run, analysis.axes, metric);
  const place = chosen === null ? -1 : run.findIndex(({ index }) => index === chosen);
  const sentence = sentenceOf(run, run[place], analysis, metric);
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    setChosen(run[(place + move + run.length) % run.length]?.index ?? null);
  };
  return (
    <Figure
      title="Parallel coordinates"
      empty={
        run.length < 2 || axes.length < 2
          ? "A comparison needs two configurations that have trained, and a value in which they differ."
          : null
      }
      sentence={sentence}
      table={<CoordinateTable rows={run} axes={analysis.axes} metric={metric} />}
    >
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- arrow keys walk through the lines, as the pointer does */}
      <div
        role="group"
        aria-label="Lines of parallel coordinates; arrow keys choose one"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- one tab stop for all lines
        tabIndex={0}
        className={classes.scroll}
        onKeyDown={onKey}
        onPointerLeave={() => setChosen(null)}
      >
        <div style={{ minWidth: axes.length * 92 }}>
          <Chart label={`Parallel coordinates: ${sentence}`} height={HEIGHT}>
            {(width) => (
              <Drawn run={run} axes={axes} width={width} best={analysis.best} chosen={chosen} onChoose={setChosen} />
            )}
          </Chart>
        </div>
      </div>
    </Figure>
  );
}

function sentenceOf(
  run: readonly Configuration[],
  one: Configuration | undefined,
  { best }: Analysis,
  metric: string,
): string {
  if (one) {
    const figures = figuresOf([one]).slice(0, 5);
    return `${one.label}: ${figures.map((figure) => `${titleOf(figure, metric).toLowerCase()} ${figure.write(one[figure.name]!.value)}`).join(", ")}.`;
  }
  const recommended = run.find(({ index }) => index === best);
  return `${run.length} configurations.${recommended ? ` In colour: ${recommended.label}, which is recommended.` : ""}`;
}

interface DrawnProps {
  run: readonly Configuration[];
  axes: readonly CoordinateAxis[];
  width: number;
  best: number | null;
  chosen: number | null;
  onChoose(index: number): void;
}

function Drawn({ run, axes, width, best, chosen, onChoose }: DrawnProps) {
  const area: Area = { left: 56, right: width - 64, top: 34, bottom: HEIGHT - 18 };
  const across = (index: number) => area.left + (index / (axes.length - 1)) * (area.right - area.left);
  const up = (share: number) => area.bottom - share * (area.bottom - area.top);
  const order = run
    .map((one, index) => ({ one, index }))
    .sort((a, b) => emphasis(a.one, best, chosen) - emphasis(b.one, best, chosen));
  return (
    <>
      {order.map(({ one, index }) => {
        const path = pathThrough(
          axes.map(({ positions }, axis) => (positions[index] == null ? null : [across(axis), up(positions[index])])),
        );
        return (
          <g key={one.index} onPointerEnter={() => onChoose(one.index)}>
            <path className={classes.wide} d={path} />
            <path className={classes.coordinate} data-emphasis={emphasis(one, best, chosen)} d={path} />
          </g>
        );
      })}
      {axes.map((axis, index) => (
        <Axis key={axis.id} axis={axis} x={across(index)} up={up} last={index === axes.length - 1} />
      ))}
    </>
  );
}

/** 0: behind; 1: recommended; 2: pointed at. */
function emphasis({ index }: Configuration, best: number | null, chosen: number | null): number {
  return index === chosen ? 2 : index === best ? 1 : 0;
}

function Axis({ axis, x, up, last }: { axis: CoordinateAxis; x: number; up(share: number): number; last: boolean }) {
  return (
    <g transform={`translate(${x.toFixed(1)} 0)`}>
      <line className={classes.coordinateAxis} y1={up(0)} y2={up(1)} />
      <text className={classes.axisTitle} y={up(1) - 18} textAnchor="middle">
        <title>{axis.id}</title>
        {axis.title}
      </text>
      {axis.ticks.map(({ at, text }) => (
        <text
          key={at}
          className={classes.tickOnLine}
          x={last ? 7 : -7}
          y={up(at)}
          dy="0.32em"
          textAnchor={last ? "start" : "end"}
        >
          {text}
        </text>
      ))}
    </g>
  );
}

function CoordinateTable({
  rows,
  axes,
  metric,
}: {
  rows: readonly Configuration[];
  axes: readonly string[];
  metric: string;
}) {
  const columns: Column<Configuration>[] = [
    ...differing(rows, axes).map((path) => ({
      id: path,
      header: axisTitle(path),
      cell: ({ values }: Configuration) => valueInWords(values[path]),
      value: ({ values }: Configuration) => sortable(values[path]),
    })),
    ...figuresOf(rows).map((figure) => ({
      id: figure.name,
      header: titleOf(figure, metric),
      cell: (one: Configuration) => written(one[figure.name], figure),
      value: (one: Configuration) => one[figure.name]?.value,
      numeric: true,
    })),
  ];
  return (
    <DataTable label="Parallel coordinates values" rows={rows} columns={columns} rowId={({ index }) => String(index)} />
  );
}

function sortable(value: unknown): string | number {
  return typeof value === "number" ? value : valueInWords(value);
}
