import { wholePercents } from "@/lib/format";
import classes from "./ProgressBar.module.css";

/** `share` null: the total is unknown, and an empty bar would say zero. */
export function ProgressBar({
  share,
  label,
  tone = "active",
}: {
  share: number | null;
  label: string;
  tone?: "active" | "good" | "bad" | "neutral";
}) {
  if (share === null) return null;
  const value = wholePercents(share);
  return (
    <div
      className={classes.track}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value}
    >
      <div className={classes.fill} data-tone={tone} style={{ width: `${value}%` }} />
    </div>
  );
}
