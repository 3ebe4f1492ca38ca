import { measured } from "@/lib/format";
import type { LoggedHistogram } from "@/lib/types";
import { RIDGE_PLACES, resampled } from "../media";
import classes from "./Media.module.css";

/** One histogram as bars of even width. */
export function Bars({ histogram, label }: { histogram: LoggedHistogram; label: string }) {
  const { edges, counts } = histogram;
  if (counts.length === 0) return null;
  const [least, most] = [edges[0]!, edges.at(-1)!];
  const even = counts.length <= RIDGE_PLACES ? counts : resampled(histogram, least, most);
  const highest = Math.max(...even, 1);
  return (
    <figure className={classes.figure}>
      <svg
        className={classes.bars}
        viewBox={`0 0 ${even.length} 1`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Histogram of ${label}`}
      >
        {even.map((counted, bin) => (
          <rect key={bin} x={bin + 0.06} y={1 - counted / highest} width={0.88} height={counted / highest} />
        ))}
      </svg>
      <figcaption className={classes.ends}>
        <span>{measured(least)}</span>
        <span>{measured(most)}</span>
      </figcaption>
    </figure>
  );
}
