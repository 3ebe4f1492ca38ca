/** Colours that lines are told apart by, named in app/styles.css: one for each card of a machine with eight. */
export const SERIES_COLORS = 8;

/** The custom property with the colour of the mean of all lines. */
export const MEAN_TOKEN = "--text";

/** The custom property with the colour of the line at `index`; the colours come round again. */
export function seriesToken(index: number): string {
  return `--series-${(index % SERIES_COLORS) + 1}`;
}
