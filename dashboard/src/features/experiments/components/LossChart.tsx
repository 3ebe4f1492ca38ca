import { SegmentedControl, Switch } from "@mantine/core";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import { count, measured, tickLabels } from "@/lib/format";
import type { Analysis } from "@/lib/types";
import { Chart, XAxis, YAxis, type Area } from "../charts/Chart";
import { extentOf, linear, logarithmic, pathThrough, tight, type Scale } from "../charts/scale";
import {
  isPositive,
  isWide,
  leftOutByLog,
  LOSS_AXES,
  lossLines,
  lossRows,
  lossSentence,
  positiveExtent,
  writeX,
  type LossAxis,
  type LossLine,
  type LossRow,
} from "../losses";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

interface Props {
  analysis: Analysis;
  axis: LossAxis;
  onAxis(axis: LossAxis): void;
  /** Of the losses; undefined: where they are far apart. */
  log: boolean | undefined;
  onLog(log: boolean): void;
}

const HEIGHT = 280;
const NAMES: Record<LossAxis, string> = { samples: "Samples", seconds: "Time", steps: "Steps" };

/** The losses of all configurations at equal samples, at equal time, or at equal steps. */
export function LossChart({ analysis, axis, onAxis, log, onLog }: Props) {
  const lines = lossLines(analysis, axis);
  const drawable = positiveExtent(lines) !== null;
  const isLog = drawable && (log ?? isWide(lines));
  const coloured = lines.filter(({ color }) => color !== null);
  const sentence = lossSentence(lines, axis) + (isLog ? leftOutByLog(lines) : "");
  return (
    <Figure
      title="Loss"
      empty={lines.length === 0 ? "No trial has reported a loss." : null}
      controls={
        <>
          <Switch
            label="Log scale"
            checked={isLog}
            disabled={!drawable}
            onChange={(event) => onLog(event.currentTarget.checked)}
          />
          <SegmentedControl
            size="xs"
            aria-label="Loss by"
            data={LOSS_AXES.map((name) => ({ value: name, label: NAMES[name] }))}
            value={axis}
            onChange={(next) => onAxis(next as LossAxis)}
          />
        </>
      }
      legend={
        <>
          {coloured.map(({ trial, name, color }) => (
            <Keyed key={trial} color={color!}>
              {name}
            </Keyed>
          ))}
          {coloured.length < lines.length && <Keyed color="--neutral">{lines.length - coloured.length} more</Keyed>}
        </>
      }
      sentence={sentence}
      table={
        <DataTable
          label="Loss values"
          rows={lossRows(lines)}
          columns={columnsOf(axis)}
          rowId={({ trial, x }) => `${trial}/${x}`}
        />
      }
    >
      <Chart label={`Loss: ${sentence}`} height={HEIGHT}>
        {(width) => <Drawn lines={lines} axis={axis} log={isLog} width={width} />}
      </Chart>
    </Figure>
  );
}

function columnsOf(axis: LossAxis): Column<LossRow>[] {
  return [
    { id: "line", header: "Configuration", cell: ({ line }) => line, value: ({ line }) => line },
    { id: "x", header: NAMES[axis], cell: ({ x }) => writeX(axis, x), value: ({ x }) => x, numeric: true },
    {
      id: "loss",
      header: "Loss",
      cell: ({ loss }) => measured(loss),
      value: ({ loss }) => loss,
      numeric: true,
    },
  ];
}

interface DrawnProps {
  lines: readonly LossLine[];
  axis: LossAxis;
  log: boolean;
  width: number;
}

function Drawn({ lines, axis, log, width }: DrawnProps) {
  const area: Area = { left: 50, right: width - 16, top: 12, bottom: HEIGHT - 44 };
  const across = extentOf(lines.flatMap(({ points }) => points.map(([x]) => x))) ?? [0, 1];
  const x = tight(across[0], across[1], area.left, area.right, width < 480 ? 3 : 6);
  const y = lossScale(lines, log, area);
  const labels = log ? y.ticks.map(measured) : tickLabels(y.ticks);
  const shows = (loss: number | null): loss is number => (log ? isPositive(loss) : loss !== null);
  return (
    <>
      <YAxis scale={y} area={area} write={(tick) => labels[y.ticks.indexOf(tick)]!} />
      <XAxis
        scale={x}
        area={area}
        write={(value) => tickOf(axis, value)}
        title={axis === "seconds" ? "training time" : axis}
      />
      {lines.toReversed().map(({ trial, points: own, color }) => (
        <path
          key={trial}
          className={classes.loss}
          data-behind={color === null || undefined}
          style={color === null ? undefined : { stroke: `var(${color})` }}
          d={pathThrough(own.map(([at, loss]) => (shows(loss) ? [x.place(at), y.place(loss)] : null)))}
        />
      ))}
    </>
  );
}

function lossScale(lines: readonly LossLine[], log: boolean, { top, bottom }: Area): Scale {
  if (log) return logarithmic(...(positiveExtent(lines) ?? [1, 10]), bottom, top);
  const losses = lines.flatMap(({ points }) => points.map(([, loss]) => loss));
  return linear(...(extentOf(losses) ?? [0, 1]), bottom, top);
}

function tickOf(axis: LossAxis, value: number): string {
  return axis === "seconds" ? writeX(axis, value) : value >= 10_000 ? tickLabels([value])[0]! : count(value);
}
