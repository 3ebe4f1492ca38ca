import { count, measured } from "@/lib/format";
import type { Ridges } from "../media";
import classes from "./Media.module.css";

interface Props {
  drawn: Ridges;
  /** Is drawn in the accent's colour. */
  step: number;
  label: string;
}

const WIDTH = 320;
const HEIGHT = 150;
/** How high the highest ridge is; ridges overlap those behind them. */
const RIDGE = 44;

/** Histograms of several steps one behind the other, the oldest at the back, as TensorBoard draws them. */
export function RidgePlot({ drawn: { least, most, ridges }, step, label }: Props) {
  const highest = Math.max(...ridges.flatMap(({ heights }) => heights), 1);
  const room = HEIGHT - RIDGE;
  return (
    <figure className={classes.figure}>
      <div className={classes.ridges}>
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`Histograms of ${label}`}
        >
          {ridges.map((ridge, at) => {
            const base = RIDGE + (ridges.length === 1 ? room : (at / (ridges.length - 1)) * room);
            return (
              <path
                key={ridge.step}
                data-chosen={ridge.step === step || undefined}
                d={pathOf(ridge.heights, base, RIDGE / highest)}
                vectorEffect="non-scaling-stroke"
              >
                <title>{`Step ${count(ridge.step)}`}</title>
              </path>
            );
          })}
        </svg>
        <div className={classes.stepEnds} aria-hidden>
          <span>{count(ridges[0]!.step)}</span>
          {ridges.length > 1 && <span>{count(ridges.at(-1)!.step)}</span>}
        </div>
      </div>
      <figcaption className={classes.ends}>
        <span>{measured(least)}</span>
        <span>{measured(most)}</span>
      </figcaption>
    </figure>
  );
}

function pathOf(heights: readonly number[], base: number, scale: number): string {
  const width = WIDTH / heights.length;
  const points = heights.map(
    (height, at) => `L${((at + 0.5) * width).toFixed(1)} ${(base - height * scale).toFixed(1)}`,
  );
  return `M0 ${base.toFixed(1)}${points.join("")}L${WIDTH} ${base.toFixed(1)}Z`;
}
