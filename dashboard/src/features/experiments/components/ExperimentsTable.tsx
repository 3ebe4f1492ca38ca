import { Link } from "@tanstack/react-router";
import { StackedBar } from "@/components/ui/StackedBar";
import { StateBadge } from "@/components/ui/StateBadge";
import { useSideways } from "@/components/ui/useSideways";
import { age, duration, measured, MISSING } from "@/lib/format";
import type { ExperimentSummary } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import type { Sort } from "../api/experiments";
import { barOf, countsInWords, notCompletedInWords } from "../experiments";
import { axisTitle } from "../figures";
import classes from "./ExperimentsTable.module.css";

interface Props {
  experiments: readonly ExperimentSummary[];
  sort: Sort;
  onSort(sort: Sort): void;
}

export function ExperimentsTable({ experiments, sort, onSort }: Props) {
  const now = useServerNow(5_000);
  return (
    <div className={`${classes.scroller} sideways`} ref={useSideways()}>
      <table className={classes.table} aria-label="Experiments">
        <thead>
          <tr>
            <SortHeader name="name" label="Experiment" sort={sort} onSort={onSort} />
            <th scope="col">State</th>
            <th scope="col">Trials</th>
            <th scope="col" data-wide="2">
              Varies
            </th>
            <th scope="col" data-numeric data-wide="1">
              Best
            </th>
            <th scope="col" data-numeric data-wide="1">
              Slot-hours
            </th>
            <th scope="col" data-numeric data-wide="1">
              Time left
            </th>
            <SortHeader name="created_at" label="Created" sort={sort} onSort={onSort} numeric />
          </tr>
        </thead>
        <tbody>
          {experiments.map((experiment) => (
            <Row key={experiment.id} experiment={experiment} now={now} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ experiment, now }: { experiment: ExperimentSummary; now: number }) {
  const { id, name, project, created_by: by, state, trials, axes } = experiment;
  const others = notCompletedInWords(trials);
  return (
    <tr>
      <td className={classes.nameCell}>
        <Link to="/experiments/$experimentId" params={{ experimentId: id }} className={classes.name}>
          {name}
        </Link>
        <div className={classes.under}>
          {project} · {by.name}
        </div>
      </td>
      <td>
        <StateBadge state={state} />
      </td>
      <td>
        <div className={classes.progress}>
          <StackedBar parts={barOf(trials)} label={`Trials of ${name}: ${countsInWords(trials)}`} size="sm" />
          <div className={classes.under}>
            {trials.completed} of {trials.total}
            {others && (
              <>
                {" · "}
                <span className={trials.failed > 0 ? classes.failed : undefined}>{others}</span>
              </>
            )}
          </div>
        </div>
      </td>
      <td data-wide="2" className={classes.axes} title={axes.join(", ")}>
        {axes.map(axisTitle).join(", ") || MISSING}
      </td>
      <td data-numeric data-wide="1">
        {measured(experiment.best_metric)}
      </td>
      <td data-numeric data-wide="1">
        {measured(experiment.slot_hours)}
      </td>
      <td data-numeric data-wide="1">
        {state === "running" ? duration(experiment.seconds_left) : MISSING}
      </td>
      <td data-numeric title={experiment.created_at}>
        {age(now - Date.parse(experiment.created_at))} ago
      </td>
    </tr>
  );
}

interface SortHeaderProps {
  name: "name" | "created_at";
  label: string;
  numeric?: boolean;
  sort: Sort;
  onSort(sort: Sort): void;
}

function SortHeader({ name, label, numeric, sort, onSort }: SortHeaderProps) {
  const up = sort === name;
  const down = sort === `-${name}`;
  const next: Sort = down || (!up && name === "name") ? name : `-${name}`;
  return (
    <th scope="col" aria-sort={up ? "ascending" : down ? "descending" : undefined} data-numeric={numeric || undefined}>
      <button type="button" className={classes.sort} onClick={() => onSort(next)}>
        {label}
        <span aria-hidden>{up ? " ↑" : down ? " ↓" : ""}</span>
      </button>
    </th>
  );
}
