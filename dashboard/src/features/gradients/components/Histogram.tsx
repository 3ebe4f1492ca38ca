import { binLabel } from "../gradients";
import classes from "./Gradients.module.css";

interface Props {
  name: string;
  histogram: readonly number[];
  edges: readonly number[];
  bins: readonly [number, number];
  large?: boolean;
}

/** Elements by size, from negative to positive; the dashed line is zero. */
export function Histogram({ name, histogram, edges, bins: [first, last], large = false }: Props) {
  const shown = histogram.slice(first, last + 1);
  const most = Math.max(...shown, 1);
  const zero = histogram.length / 2 - first;
  return (
    <figure className={classes.figure}>
      <svg
        className={classes.histogram}
        data-large={large || undefined}
        viewBox={`0 0 ${shown.length} 1`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Histogram of ${name}`}
      >
        {shown.map((elements, bin) => (
          <rect key={bin} x={bin + 0.08} y={1 - elements / most} width={0.84} height={elements / most} />
        ))}
        {zero >= 0 && zero <= shown.length && (
          <line x1={zero} x2={zero} y1={0} y2={1} vectorEffect="non-scaling-stroke" />
        )}
      </svg>
      {large && (
        <figcaption className={classes.ends}>
          <span>{binLabel(edges, first)}</span>
          <span>{binLabel(edges, last)}</span>
        </figcaption>
      )}
    </figure>
  );
}
