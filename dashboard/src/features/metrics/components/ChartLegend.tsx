import { seriesToken } from "@/lib/series";
import { placeWords } from "../axes";
import { labelsOf, valueAt, type DrawSettings, type Line } from "../lines";
import { withoutUnit } from "../units";
import classes from "./Metrics.module.css";

interface Props {
  lines: readonly Line[];
  hidden: ReadonlySet<string>;
  onToggle(label: string): void;
  /** Where the pointer is on the x axis. */
  cursor: number | null;
  settings: DrawSettings;
}

/** Names in their colours, with the values under the pointer. One of several is hidden, and shown again, by a click. */
export function ChartLegend({ lines, hidden, onToggle, cursor, settings }: Props) {
  const labels = labelsOf(lines);
  return (
    <span className={classes.legend}>
      {cursor !== null && <span className="muted">{placeWords(settings.axis, cursor)}</span>}
      {labels.map((label) => {
        const own = lines.filter((line) => line.label === label);
        const shown = !hidden.has(label);
        const entry = (
          <>
            <span className={classes.swatch} style={{ background: `var(${seriesToken(own[0]!.color)})` }} aria-hidden />
            {(labels.length > 1 || cursor === null) && label}
            {cursor !== null && shown && <strong>{valueWords(own, cursor, settings)}</strong>}
          </>
        );
        return labels.length > 1 ? (
          <button
            key={label}
            type="button"
            className={classes.key}
            aria-pressed={shown}
            title={shown ? `Hide ${label}` : `Show ${label}`}
            onClick={() => onToggle(label)}
          >
            {entry}
          </button>
        ) : (
          <span key={label} className={classes.key}>
            {entry}
          </span>
        );
      })}
    </span>
  );
}

function valueWords(lines: readonly Line[], place: number, { smoothing }: DrawSettings): string {
  const value = valueAt(lines, place, smoothing);
  return value === undefined ? "" : withoutUnit(value, lines[0]!.unit);
}
