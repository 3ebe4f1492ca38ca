import { Checkbox } from "@mantine/core";
import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import { MISSING, percent } from "@/lib/format";
import { seriesToken } from "@/lib/series";
import type { Analysis, Estimate } from "@/lib/types";
import { Chart, XAxis, YAxis, type Area } from "../charts/Chart";
import { doublings, pathThrough, tight, type Scale } from "../charts/scale";
import { figureNamed, written } from "../figures";
import { scalingLines, scalingRows, scalingSentence, type Point, type ScalingLine, type ScalingRow } from "../scaling";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

const HEIGHT = 280;

const COLUMNS: readonly Column<ScalingRow>[] = [
  { id: "line", header: "Configuration", cell: ({ line }) => line, value: ({ line }) => line },
  { id: "ranks", header: "Ranks", cell: ({ ranks }) => ranks, value: ({ ranks }) => ranks, numeric: true },
  {
    id: "measured",
    header: "Measured efficiency",
    cell: ({ measured }) => written(measured, figureNamed("efficiency")!),
    value: ({ measured }) => measured?.value,
    numeric: true,
  },
  {
    id: "predicted",
    header: "Predicted",
    cell: ({ predicted }) => (predicted === null ? MISSING : percent(predicted)),
    value: ({ predicted }) => predicted,
    numeric: true,
  },
];

/** What each strategy keeps of the ideal speedup: measured with intervals, ideal, and as the cost model predicts. */
export function ScalingChart({ analysis }: { analysis: Analysis }) {
  const [beyond, setBeyond] = useState(false);
  const all = scalingLines(analysis);
  const measuredTo = Math.max(1, ...all.flatMap(({ points }) => points.filter(isMeasured).map(({ ranks }) => ranks)));
  const further = all.some(({ points }) => points.some(({ ranks }) => ranks > measuredTo));
  const lines = beyond ? all : all.map((line) => upTo(line, measuredTo));
  return (
    <Figure
      title="Scaling efficiency"
      empty={
        all.length === 0
          ? "Efficiency needs two numbers of ranks with all else equal, one of them 1. Set world_sizes: [1, 2, …], or baseline: true."
          : null
      }
      controls={
        further && (
          <Checkbox
            label="Predict more ranks"
            checked={beyond}
            onChange={(event) => setBeyond(event.currentTarget.checked)}
          />
        )
      }
      legend={<Legend lines={lines} />}
      sentence={
        scalingSentence(all) + (beyond ? ` Beyond ${measuredTo} ranks nothing was measured: ${assumed(analysis)}` : "")
      }
      table={
        <DataTable
          label="Scaling efficiency values"
          rows={scalingRows(lines)}
          columns={COLUMNS}
          rowId={({ line, ranks }) => `${line}/${ranks}`}
        />
      }
    >
      <Chart label={`Scaling efficiency: ${scalingSentence(all)}`} height={HEIGHT}>
        {(width) => <Drawn lines={lines} width={width} />}
      </Chart>
    </Figure>
  );
}

const isMeasured = ({ measured }: Point) => measured !== null;

function upTo(line: ScalingLine, most: number): ScalingLine {
  return { ...line, points: line.points.filter(({ ranks }) => ranks <= most) };
}

function assumed({ predictions }: Analysis): string {
  return predictions[0] ? `a prediction that assumes ${predictions[0].assumptions.replace(/\.$/, "")}.` : "";
}

function Legend({ lines }: { lines: readonly ScalingLine[] }) {
  return (
    <>
      {lines.map(({ name }, index) => (
        <Keyed key={name} color={seriesToken(index)}>
          {name}
        </Keyed>
      ))}
      <span className={classes.key}>
        <svg width="22" height="8" aria-hidden>
          <line className={classes.ideal} x1="0" x2="22" y1="4" y2="4" />
        </svg>
        ideal
      </span>
      {lines.some(({ points }) => points.some(({ predicted }) => predicted !== null)) && (
        <span className={classes.key}>
          <svg width="22" height="8" aria-hidden>
            <line className={classes.predictedKey} x1="0" x2="22" y1="4" y2="4" />
          </svg>
          predicted
        </span>
      )}
    </>
  );
}

function Drawn({ lines, width }: { lines: readonly ScalingLine[]; width: number }) {
  const area: Area = { left: 46, right: width - 18, top: 14, bottom: HEIGHT - 44 };
  const points = lines.flatMap((line) => line.points);
  const top = Math.max(
    1,
    ...points.flatMap(({ measured, predicted }) => [measured?.high ?? measured?.value ?? 0, predicted ?? 0]),
  );
  const x = doublings([1, ...points.map(({ ranks }) => ranks)], area.left + 12, area.right - 12);
  const y = tight(0, top * 1.03, area.bottom, area.top, 4);
  return (
    <>
      <YAxis scale={y} area={area} write={(value) => percent(value)} />
      <XAxis scale={x} area={area} write={String} title="ranks" />
      <line className={classes.ideal} x1={area.left} x2={area.right} y1={y.place(1)} y2={y.place(1)} />
      {lines.map((line, index) => (
        <Line
          key={line.name}
          line={line}
          x={x}
          y={y}
          color={`var(${seriesToken(index)})`}
          offset={spread(index, lines.length)}
        />
      ))}
    </>
  );
}

/** Lines that share their numbers of ranks stand side by side, so that no interval hides another. */
function spread(index: number, count: number): number {
  return (index - (count - 1) / 2) * 5;
}

interface LineProps {
  line: ScalingLine;
  x: Scale;
  y: Scale;
  color: string;
  offset: number;
}

function Line({ line, x, y, color, offset }: LineProps) {
  const across = (ranks: number) => x.place(ranks) + (ranks === 1 ? 0 : offset);
  const through = (value: (point: Point) => number | null) =>
    pathThrough(
      line.points
        .map((point) => ({ ranks: point.ranks, value: value(point) }))
        .filter((point): point is { ranks: number; value: number } => point.value !== null)
        .map(({ ranks, value }) => [across(ranks), y.place(value)] as const),
    );
  return (
    <g style={{ color }}>
      <path className={classes.predicted} d={through(({ predicted }) => predicted)} />
      <path className={classes.line} d={through(({ measured }) => measured?.value ?? null)} />
      {line.points.map((point) => (
        <g key={point.ranks}>
          {point.predicted !== null && (
            <circle className={classes.hollow} cx={across(point.ranks)} cy={y.place(point.predicted)} r={2.5} />
          )}
          {point.measured && <Interval estimate={point.measured} at={across(point.ranks)} y={y} />}
        </g>
      ))}
    </g>
  );
}

function Interval({ estimate: { value, low, high }, at, y }: { estimate: Estimate; at: number; y: Scale }) {
  return (
    <>
      {low !== null && high !== null && (
        <path
          className={classes.interval}
          d={`M${at} ${y.place(low)}V${y.place(high)}M${at - 4} ${y.place(low)}h8M${at - 4} ${y.place(high)}h8`}
        />
      )}
      <circle className={classes.point} cx={at} cy={y.place(value)} r={3.5} />
    </>
  );
}
