import type uPlot from "uplot";
import { useRef, useState, type ReactNode, type Ref, type RefObject } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { Panel } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { download, fileName } from "@/lib/files";
import { pngOf, svgOf, type Bar } from "../exports";
import { readPalette, type Palette, type Range } from "../plot";
import { ChartMenu, type Format } from "./ChartMenu";
import { ValueRange } from "./ValueRange";
import classes from "./Metrics.module.css";

interface Props {
  title: string;
  unit: string;
  legend: ReactNode;
  /** The names of what is drawn, each with its colour. */
  entries: readonly { label: string; color: number }[];
  sentence: string;
  sentenceRef?: Ref<HTMLParagraphElement>;
  table(): ReactNode;
  plot(height: number, drawn: RefObject<uPlot | null>): ReactNode;
  csv(): string;
  /** What stands above the lines. */
  bars?(plot: uPlot, palette: Palette): Bar[];
  /** What the left axis shows; null: everything. */
  values?: Range | null;
  onValues?(range: Range | null): void;
  /** Whether the left axis is logarithmic. */
  log?: boolean;
  /** Further entries of the menu. */
  children?: ReactNode;
}

const HEIGHT = 210;
/** Of the window, what is left for a chart that fills the screen. */
const FULL_SHARE = 0.72;

/** A chart with its legend and sentence; as a table, on the whole screen, or as a file. */
export function ChartFrame(props: Props) {
  const {
    title,
    unit,
    legend,
    sentence,
    sentenceRef,
    table,
    plot,
    values = null,
    onValues,
    log = false,
    children,
  } = props;
  const [asTable, setAsTable] = useState(false);
  const [full, setFull] = useState(false);
  const [ranging, setRanging] = useState(false);
  const drawn = useRef<uPlot>(null);
  const body = (height: number) => (
    <>
      {asTable ? table() : plot(height, drawn)}
      <p ref={sentenceRef} className={classes.summary}>
        {sentence}
      </p>
    </>
  );
  const head = (
    <div className={classes.head}>
      {legend}
      <TableToggle pressed={asTable} onChange={setAsTable} what={title} />
      <ChartMenu
        title={title}
        full={full}
        drawn={!asTable}
        zoomed={values !== null}
        onFull={() => setFull(!full)}
        onRange={onValues && (() => setRanging(true))}
        onAllValues={() => onValues?.(null)}
        onSave={(format) => void save(format, drawn.current, props)}
      >
        {children}
      </ChartMenu>
    </div>
  );
  return (
    <Panel title={title} unit={unit} label={`${title} chart`} actions={head} flush>
      {full ? <p className={classes.summary}>This chart fills the screen.</p> : body(HEIGHT)}
      <Dialog opened={full} onClose={() => setFull(false)} fullScreen title={title} closeLabel="Leave full screen">
        <div className={classes.full}>{head}</div>
        {full && body(Math.round(window.innerHeight * FULL_SHARE))}
      </Dialog>
      {ranging && (
        <ValueRange title={title} range={values} log={log} onRange={onValues!} onClose={() => setRanging(false)} />
      )}
    </Panel>
  );
}

async function save(format: Format, plot: uPlot | null, { title, entries, sentence, csv, bars }: Props): Promise<void> {
  const name = `${fileName(title)}.${format}`;
  if (format === "csv") return download(new Blob([csv()], { type: "text/csv" }), name);
  if (plot === null) return;
  const palette = readPalette(plot.root);
  const svg = svgOf(plot, bars?.(plot, palette) ?? [], {
    title,
    sentence,
    legend: entries.map(({ label, color }) => ({ label, color: palette.series[color % palette.series.length]! })),
    background: getComputedStyle(plot.root).getPropertyValue("--surface").trim(),
    text: palette.text,
  });
  download(format === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : await pngOf(svg), name);
}
