import { Button, MultiSelect, TextInput } from "@mantine/core";
import { useQueries, type UseQueryResult } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { count, plural } from "@/lib/format";
import type { JobMedia } from "@/lib/types";
import { mediaQuery } from "../api/media";
import { keyId, nearest, sharedKeys, stepsOf, type MediaRun, type SharedKey } from "../media";
import { HistogramPanel } from "./HistogramPanel";
import { ImagesPanel } from "./ImagesPanel";
import classes from "./Media.module.css";
import { StepSlider } from "./StepSlider";
import { TablePanel } from "./TablePanel";

export interface BoardRange {
  from: number;
  to: number;
}

interface Props {
  runs: readonly MediaRun[];
  /** The step that is shown; the newest without one. */
  step: number | undefined;
  /** The steps that the charts show; null: all of them. */
  range: BoardRange | null;
  onStep(step: number | undefined): void;
  /** Leaves the range, for the charts as well. */
  onAllSteps?(): void;
  /** Nothing is shown where nothing is logged. */
  quiet?: boolean;
  /** What was logged was deleted. */
  gone?: boolean;
}

/** So many panels at once. */
const PAGE = 12;
/** From so many keys on they can be searched. */
const MANY = 6;

/** Images, histograms and tables of one run or of several side by side, all at one step. */
export function MediaBoard({ runs, step, range, onStep, onAllSteps, quiet = false, gone = false }: Props) {
  const results = useQueries({ queries: runs.map(({ id, live }) => mediaQuery(id, live)) });
  const source = together(results);
  const keys = sharedKeys(
    runs,
    results.map(({ data }) => data),
  );
  if (quiet && keys.length === 0) return null;
  if (source.data === undefined || keys.length === 0)
    return (
      <Panel label="Media" flush>
        <PanelStates
          source={source}
          what="what was logged"
          isEmpty={() => keys.length === 0}
          empty={
            <EmptyState title={gone ? "Deleted" : "No images, histograms or tables"}>
              {gone
                ? "What this job logged was deleted."
                : "Log them beside numbers: paceline.log(step, samples=paceline.Image(array), weights=paceline.Histogram(tensor))."}
            </EmptyState>
          }
        >
          {() => null}
        </PanelStates>
      </Panel>
    );
  return <Board {...{ runs, keys, step, range, onStep, onAllSteps }} />;
}

function Board({
  runs,
  keys,
  step,
  range,
  onStep,
  onAllSteps,
}: Pick<Props, "runs" | "step" | "range" | "onStep" | "onAllSteps"> & { keys: readonly SharedKey[] }) {
  const [ranks, setRanks] = useState<readonly number[]>([]);
  const [search, setSearch] = useState("");
  const [most, setMost] = useState(PAGE);
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const inRange = stepsOf(keys, range);
  const steps = inRange.length > 0 ? inRange : stepsOf(keys, null);
  const shown = (step === undefined ? undefined : nearest(steps, step)) ?? steps.at(-1)!;
  const known = [...new Set(keys.flatMap((key) => key.runs.flatMap(({ media }) => media.ranks)))].sort((a, b) => a - b);
  const found = keys.filter(({ key }) => key.toLowerCase().includes(search.trim().toLowerCase()));
  return (
    <section className="stack" aria-label="Logged images, histograms and tables">
      <div className={classes.toolbar} role="group" aria-label="What is shown">
        <StepSlider steps={steps} step={shown} newest={step === undefined} onStep={onStep} />
        {known.length > 1 && (
          <MultiSelect
            aria-label="Ranks"
            placeholder={ranks.length === 0 ? "First ranks" : undefined}
            className={classes.ranks}
            data={known.map((rank) => ({ value: String(rank), label: `Rank ${rank}` }))}
            value={ranks.map(String)}
            onChange={(chosen) => setRanks(chosen.map(Number))}
            maxValues={4}
            searchable
            clearable
          />
        )}
        {keys.length > MANY && (
          <TextInput
            aria-label="Search keys"
            placeholder="Search keys"
            value={search}
            onChange={(event) => setSearch(event.currentTarget.value)}
          />
        )}
        {onAllSteps && range !== null && (
          <Button size="compact-sm" variant="default" onClick={onAllSteps}>
            Show all steps, not only {count(range.from)}–{count(range.to)}
          </Button>
        )}
      </div>
      {found.length === 0 && (
        <Panel label="Media" flush>
          <EmptyState title="No such key">
            {plural(keys.length, "key")} without “{search.trim()}”.
          </EmptyState>
        </Panel>
      )}
      {found.slice(0, most).map((key) => (
        <KeyPanel
          key={keyId(key)}
          shared={key}
          folded={folded.has(keyId(key))}
          onFold={() => setFolded(toggled(folded, keyId(key)))}
          {...{ step: shown, range, ranks, several: runs.length > 1 }}
        />
      ))}
      {found.length > most && (
        <Button variant="default" onClick={() => setMost(most + PAGE)}>
          Show {Math.min(PAGE, found.length - most)} more of {found.length} keys
        </Button>
      )}
    </section>
  );
}

function toggled(set: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const rest = new Set(set);
  if (!rest.delete(id)) rest.add(id);
  return rest;
}

export interface KeyPanelProps {
  shared: SharedKey;
  step: number;
  range: BoardRange | null;
  ranks: readonly number[];
  /** There are several runs, which are told apart by their names. */
  several: boolean;
  /** The button that folds the panel, for its heading. */
  fold: ReactNode;
}

const KINDS = { images: ImagesPanel, histogram: HistogramPanel, table: TablePanel };

/** A key that folds: what is folded is neither fetched nor drawn. */
function KeyPanel({ folded, onFold, ...props }: Omit<KeyPanelProps, "fold"> & { folded: boolean; onFold(): void }) {
  const { key, kind } = props.shared;
  const Kind = KINDS[kind];
  const fold = (
    <Button
      size="compact-xs"
      variant="default"
      aria-expanded={!folded}
      aria-label={`${folded ? "Unfold" : "Fold"} ${key}`}
      onClick={onFold}
    >
      {folded ? "Unfold" : "Fold"}
    </Button>
  );
  return folded ? (
    <Panel title={key} label={`${key} ${kind}, folded`} actions={fold} flush>
      {null}
    </Panel>
  ) : (
    <Kind {...props} fold={fold} />
  );
}

/** Several queries as one: loading until all are there, in error as soon as one is. */
function together(results: readonly UseQueryResult<JobMedia>[]) {
  return {
    data: results.every(({ data }) => data !== undefined) ? results : undefined,
    error: results.find(({ error }) => error !== null)?.error ?? null,
    isPending: results.some(({ isPending }) => isPending),
    dataUpdatedAt: Math.min(...results.map(({ dataUpdatedAt }) => dataUpdatedAt)),
    refetch: () => results.map((result) => result.refetch()),
  };
}
