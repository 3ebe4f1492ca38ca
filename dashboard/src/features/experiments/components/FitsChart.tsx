import { Select } from "@mantine/core";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import type { Analysis, Fit } from "@/lib/types";
import { Chart, XAxis, YAxis, type Area } from "../charts/Chart";
import { doublings, pathThrough, tight } from "../charts/scale";
import { fitId, fitPoints, fitsNeed, fitTitle, LAWS, signedPercent, type FitPoint } from "../fits";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

interface Props {
  analysis: Analysis;
  /** The id of the fit that is drawn; undefined or unknown: the first one. */
  chosen: string | undefined;
  onChoose(fit: string): void;
}

const HEIGHT = 330;
const RESIDUALS = 74;

/** A law beside what was measured, and its residuals below; the table has all of them. */
export function FitsChart({ analysis, chosen, onChoose }: Props) {
  const { fits } = analysis;
  const fit = fits.find((one) => fitId(one) === chosen) ?? fits[0];
  if (!fit)
    return (
      <Figure title="Laws of scaling" sentence="" table={null} empty={fitsNeed(analysis)}>
        {null}
      </Figure>
    );
  return (
    <Figure
      title="Laws of scaling"
      tools={
        <Select
          aria-label="Law and series"
          w={280}
          allowDeselect={false}
          data={fits.map((one) => ({ value: fitId(one), label: fitTitle(one) }))}
          value={fitId(fit)}
          onChange={(id) => id && onChoose(id)}
        />
      }
      legend={
        <>
          <Keyed color="--series-1">measured {LAWS[fit.law].of}</Keyed>
          <Keyed color="--series-2">{LAWS[fit.law].title}</Keyed>
        </>
      }
      sentence={fit.text}
      table={<DataTable label="Laws of scaling values" rows={fits.flatMap(fitPoints)} columns={COLUMNS} rowId={idOf} />}
    >
      <Chart label={`Laws of scaling: ${fit.text}`} height={HEIGHT}>
        {(width) => <Drawn fit={fit} width={width} />}
      </Chart>
    </Figure>
  );
}

const idOf = ({ fit, ranks, measured }: FitPoint) => `${fitId(fit)}/${ranks}/${measured}`;

const COLUMNS: readonly Column<FitPoint>[] = [
  { id: "fit", header: "Law", cell: ({ fit }) => fitTitle(fit), value: ({ fit }) => fitTitle(fit) },
  { id: "parameters", header: "Parameters", cell: ({ fit }) => LAWS[fit.law].parameters(fit.parameters) },
  { id: "ranks", header: "Ranks", cell: ({ ranks }) => ranks, value: ({ ranks }) => ranks, numeric: true },
  { id: "measured", header: "Measured", cell: ({ fit, measured }) => LAWS[fit.law].write(measured), numeric: true },
  { id: "fitted", header: "Fitted", cell: ({ fit, fitted }) => LAWS[fit.law].write(fitted), numeric: true },
  {
    id: "residual",
    header: "Residual",
    cell: ({ residual }) => signedPercent(residual),
    value: ({ residual }) => Math.abs(residual),
    numeric: true,
  },
];

function Drawn({ fit, width }: { fit: Fit; width: number }) {
  const points = fitPoints(fit);
  const below: Area = { left: 62, right: width - 18, top: HEIGHT - 44 - RESIDUALS, bottom: HEIGHT - 44 };
  const area: Area = { ...below, top: 14, bottom: below.top - 34 };
  const x = doublings(fit.ranks, area.left + 14, area.right - 14);
  const y = tight(0, Math.max(...fit.measured, ...fit.fitted) * 1.05, area.bottom, area.top, 4);
  const worst = Math.max(fit.worst_residual, LEAST_SCALE);
  const residual = { ...tight(-worst, worst, below.bottom, below.top), ticks: [-worst, 0, worst] };
  return (
    <>
      <YAxis scale={y} area={area} write={LAWS[fit.law].write} />
      <YAxis scale={residual} area={below} write={signedPercent} title="residual" />
      <XAxis scale={x} area={below} write={String} title="ranks" />
      <g style={{ color: "var(--series-2)" }}>
        {fit.law !== "alpha_beta" && (
          <path
            className={classes.line}
            d={pathThrough(points.map(({ ranks, fitted }) => [x.place(ranks), y.place(fitted)] as const))}
          />
        )}
        {points.map((point) => (
          <g key={idOf(point)} transform={`translate(${x.place(point.ranks)} 0)`}>
            <circle className={classes.hollow} cy={y.place(point.fitted)} r={3.5} />
            <path className={classes.stick} d={`M0 ${residual.place(0)}V${residual.place(point.residual)}`} />
          </g>
        ))}
      </g>
      <g style={{ color: "var(--series-1)" }}>
        {points.map((point) => (
          <circle
            key={idOf(point)}
            className={classes.point}
            cx={x.place(point.ranks)}
            cy={y.place(point.measured)}
            r={3.5}
          />
        ))}
      </g>
    </>
  );
}

/** A perfect fit has residuals all the same: its axis does not shrink to nothing. */
const LEAST_SCALE = 0.01;
