import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import { byteTicks, tickLabels } from "@/lib/format";
import type { Analysis } from "@/lib/types";
import { Chart, XAxis, YAxis, type Area } from "../charts/Chart";
import { extentOf, padded, pathThrough, tight } from "../charts/scale";
import { figureNamed, titleOf, written, type FigureSpec, type Goal } from "../figures";
import { paretoFront, paretoSentence, staircase, type ParetoFront, type ParetoPoint } from "../pareto";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

interface Props {
  analysis: Analysis;
  metric: string;
  goal: Goal;
}

const HEIGHT = 280;
const COLORS = 6;
const SPEED = figureNamed("samples_per_second")!;

/** Each configuration by its speed and what it costs; those that no other one beats are filled and joined. */
export function ParetoChart({ analysis, metric, goal }: Props) {
  const front = paretoFront(analysis);
  if (front === null)
    return (
      <Figure
        title="Pareto front"
        sentence=""
        table={null}
        empty="A front needs two configurations of which the speed is known, and the peak memory or the metric."
      >
        {null}
      </Figure>
    );
  const sentence = paretoSentence(front, metric);
  const title = titleOf(front.cost, metric);
  return (
    <Figure
      title="Pareto front"
      legend={<Legend points={front.points} />}
      sentence={sentence}
      table={
        <DataTable
          label="Pareto front values"
          rows={front.points}
          columns={columnsOf(front.cost, title)}
          rowId={({ configuration }) => String(configuration)}
          rowProps={({ recommended }) => ({ "data-selected": recommended })}
        />
      }
    >
      <Chart label={`Pareto front: ${sentence}`} height={HEIGHT}>
        {(width) => <Drawn front={front} goal={goal} title={title} width={width} />}
      </Chart>
    </Figure>
  );
}

function columnsOf(cost: FigureSpec, title: string): Column<ParetoPoint>[] {
  return [
    { id: "label", header: "Configuration", cell: ({ label }) => label, value: ({ label }) => label },
    {
      id: "speed",
      header: SPEED.title,
      cell: ({ speed }) => written(speed, SPEED),
      value: ({ speed }) => speed.value,
      numeric: true,
    },
    {
      id: "cost",
      header: title,
      cell: (point) => written(point.cost, cost),
      value: (point) => point.cost.value,
      numeric: true,
    },
    {
      id: "front",
      header: "Pareto front",
      cell: ({ front }) => (front ? "on the front" : "beaten by another"),
      value: ({ front }) => Number(!front),
    },
  ];
}

/** Those on the front have a colour each, as far as there are colours. */
function colorAt(place: number, { front }: ParetoPoint): string {
  return front && place < COLORS ? `--series-${place + 1}` : "--neutral";
}

function Legend({ points }: { points: readonly ParetoPoint[] }) {
  const beaten = points.filter(({ front }) => !front).length;
  return (
    <>
      {points.slice(0, COLORS).flatMap((point, place) =>
        point.front ? (
          <Keyed key={point.configuration} color={colorAt(place, point)}>
            {point.label}
          </Keyed>
        ) : (
          []
        ),
      )}
      {beaten > 0 && (
        <span className={classes.key}>
          <svg width="10" height="10" aria-hidden>
            <circle className={classes.beaten} cx="5" cy="5" r="3.5" />
          </svg>
          beaten by another
        </span>
      )}
      {points.some(({ recommended }) => recommended) && (
        <span className={classes.key}>
          <svg width="14" height="14" aria-hidden>
            <circle className={classes.ring} cx="7" cy="7" r="5.5" />
          </svg>
          recommended
        </span>
      )}
    </>
  );
}

interface DrawnProps {
  front: ParetoFront;
  goal: Goal;
  title: string;
  width: number;
}

function Drawn({ front, goal, title, width }: DrawnProps) {
  const { cost, points } = front;
  const area: Area = { left: 70, right: width - 18, top: 28, bottom: HEIGHT - 44 };
  const x = tight(...padded(extentOf(points.map(({ speed }) => speed.value))!), area.left, area.right, 4);
  const [low, high] = padded(extentOf(points.map((point) => point.cost.value))!);
  // Sizes have round ticks in their binary prefix.
  const unit = cost.name === "peak_memory_bytes" ? 1024 ** Math.floor(Math.log2(high) / 10) : 1;
  const y = tight(low / unit, high / unit, area.bottom, area.top, 4);
  const across = tickLabels(x.ticks);
  const up = unit === 1 ? tickLabels(y.ticks) : byteTicks(y.ticks.map((tick) => tick * unit));
  const placed = ({ speed, cost: { value } }: ParetoPoint) => [x.place(speed.value), y.place(value / unit)] as const;
  return (
    <>
      <YAxis scale={y} area={area} write={(tick) => up[y.ticks.indexOf(tick)]!} title={title} />
      <XAxis scale={x} area={area} write={(tick) => across[x.ticks.indexOf(tick)]!} title="samples per second" />
      <path className={classes.stairs} d={pathThrough(staircase(front, goal).map(placed))} />
      {points.map((point, place) => {
        const [cx, cy] = placed(point);
        return (
          <g key={point.configuration} style={{ color: `var(${colorAt(place, point)})` }}>
            <circle className={point.front ? classes.point : classes.beaten} cx={cx} cy={cy} r={4.5}>
              <title>{`${point.label}: ${written(point.speed, SPEED)} samples/s, ${written(point.cost, cost)}`}</title>
            </circle>
            {point.recommended && <circle className={classes.ring} cx={cx} cy={cy} r={8.5} />}
          </g>
        );
      })}
    </>
  );
}
