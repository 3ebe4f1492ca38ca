/** What a chart shows, as the URL says it. */
export interface ChartView {
  from?: number;
  to?: number;
  log?: boolean;
  smooth?: number;
  rank?: number;
}
