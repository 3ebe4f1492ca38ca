/** What a chart shows, as the URL says it. */
import type { Axis } from "./axes";
import type { DrawSettings } from "./lines";
import { smoothingOf, type SmoothingKind } from "./smoothing";

export interface ChartView {
  from?: number;
  to?: number;
  log?: boolean;
  /** How much; what it means depends on the kind. */
  smooth?: number;
  /** The exponential one where nothing else is said. */
  smoothing?: SmoothingKind;
  axis?: Axis;
  rank?: number;
}

export function settingsOf({ log, smooth, smoothing, axis }: ChartView): DrawSettings {
  return { log: log ?? false, smoothing: smoothingOf(smoothing, smooth), axis: axis ?? "step" };
}
