import classes from "./Cluster.module.css";

const HIGH = 0.9;

export function Gauge({ name, share, text }: { name: string; share: number | null; text: string }) {
  const value = share === null || !Number.isFinite(share) ? null : Math.min(1, Math.max(0, share));
  return (
    <div className={classes.gauge}>
      <span className={classes.gaugeName}>{name}</span>
      <span className={classes.gaugeText}>{text}</span>
      <div
        className={classes.gaugeTrack}
        data-missing={value === null || undefined}
        role="meter"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={value === null ? undefined : Math.round(value * 100)}
        aria-valuetext={text}
      >
        {value !== null && (
          <div
            className={classes.gaugeFill}
            data-high={value >= HIGH || undefined}
            style={{ width: `${value * 100}%` }}
          />
        )}
      </div>
    </div>
  );
}
