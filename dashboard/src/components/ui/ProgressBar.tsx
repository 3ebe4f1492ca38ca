import classes from "./ProgressBar.module.css";

/** `share` null: the total is unknown, which is not zero. */
export function ProgressBar({ share, label, tone = "active" }: { share: number | null; label: string; tone?: "active" | "good" | "bad" | "neutral" }) {
  const value = share === null ? undefined : Math.round(share * 100);
  return (
    <div className={classes.track} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={value}>
      <div className={classes.fill} data-tone={tone} style={{ width: `${value ?? 0}%` }} />
    </div>
  );
}
