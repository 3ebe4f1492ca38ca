import type { ReactNode } from "react";
import { FormSection } from "@/components/ui/FormSection";
import { SchemaField } from "@/components/ui/SchemaField";
import { issuesWithin } from "@/lib/spec/issues";
import { pointerOf, schemaAt, type Issue, type Path, type Schema } from "@/lib/spec/schema";
import { at, onlyInText } from "../draft";
import { AxesEditor } from "./AxesEditor";
import classes from "./ExperimentForm.module.css";

interface Props {
  schema: Schema;
  jobSchema: Schema;
  value: unknown;
  issues: readonly Issue[];
  onChange(path: Path, value: unknown): void;
  /** The form of the base job, from the feature that owns it. */
  jobForm: ReactNode;
}

const WHAT: readonly Path[] = [
  ["name"],
  ["project"],
  ["repeats"],
  ["vary_seed"],
  ["metric", "name"],
  ["metric", "goal"],
  ["description"],
];
/** Names that say too little by themselves. */
const LABELS: Record<string, string> = {
  "metric.name": "Metric",
  "metric.goal": "Goal of the metric",
  "budget.slot_hours": "Budget of slot-hours",
  "budget.wall_time": "Budget of time",
  "budget.trials": "Budget of trials",
  "halving.min_steps": "Halving: first rung (steps)",
  "halving.factor": "Halving: factor",
  at_once: "Trials at once",
};
const LIMITS: readonly Path[] = [
  ["at_once"],
  ["budget", "slot_hours"],
  ["budget", "wall_time"],
  ["budget", "trials"],
  ["halving", "min_steps"],
  ["halving", "factor"],
];

/** The experiment as a form; what it does not show is said, and stands in the text. */
export function ExperimentForm(props: Props) {
  const { jobSchema, value, issues, onChange, jobForm } = props;
  const hidden = onlyInText(value);
  return (
    <div className={classes.form}>
      <FormSection name="Experiment" open issues={WHAT.flatMap(([part]) => issuesWithin(issues, pointerOf([part!])))}>
        <Fields {...props} paths={WHAT} />
      </FormSection>
      <FormSection
        name="What varies"
        open
        issues={["/grid", "/world_sizes", "/zip"].flatMap((part) => issuesWithin(issues, part))}
      >
        <AxesEditor jobSchema={jobSchema} value={value} issues={issues} onChange={onChange} />
        {hidden.length > 0 && (
          <p className={classes.hidden}>
            This document also has <code>{hidden.join(", ")}</code>: edit {hidden.length === 1 ? "it" : "them"} as YAML.
          </p>
        )}
      </FormSection>
      <FormSection
        name="Budget and early stopping"
        issues={["/budget", "/halving", "/at_once"].flatMap((part) => issuesWithin(issues, part))}
      >
        <Fields {...props} paths={LIMITS} />
      </FormSection>
      <FormSection name="Base job" open={false} issues={issuesWithin(issues, "/job")}>
        <p className={classes.hidden}>All trials begin with this spec.</p>
        {jobForm}
      </FormSection>
    </div>
  );
}

function Fields({ schema, value, issues, onChange, paths }: Props & { paths: readonly Path[] }) {
  return (
    <div className={classes.fields}>
      {paths.map((path) => {
        const field = schemaAt(schema, path, value);
        return field ? (
          <SchemaField
            key={path.join(".")}
            label={LABELS[path.join(".")]}
            path={path}
            schema={field}
            value={at(value, path)}
            issues={issues}
            onChange={onChange}
          />
        ) : null;
      })}
    </div>
  );
}
