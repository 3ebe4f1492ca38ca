import { useState, type ReactNode } from "react";
import { SchemaField } from "@/components/ui/SchemaField";
import { issuesWithin } from "@/lib/spec/issues";
import { schemaAt, type Issue, type Path, type Schema } from "@/lib/spec/schema";
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
      <Section name="Experiment" open issues={[]}>
        <Fields {...props} paths={WHAT} />
      </Section>
      <Section
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
      </Section>
      <Section
        name="Budget and early stopping"
        issues={["/budget", "/halving", "/at_once"].flatMap((part) => issuesWithin(issues, part))}
      >
        <Fields {...props} paths={LIMITS} />
      </Section>
      <Section name="Base job" open={false} issues={issuesWithin(issues, "/job")}>
        <p className={classes.hidden}>All trials begin with this spec.</p>
        {jobForm}
      </Section>
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

interface SectionProps {
  name: string;
  open?: boolean;
  issues: readonly Issue[];
  children: ReactNode;
}

/** Fields are drawn once the section is open: a whole job's form is long. */
function Section({ name, open = false, issues, children }: SectionProps) {
  const [unfolded, setUnfolded] = useState(open);
  const shown = unfolded || issues.length > 0;
  return (
    <details
      className={classes.section}
      open={shown}
      onToggle={(event) => event.currentTarget.open !== shown && setUnfolded(event.currentTarget.open)}
    >
      <summary className={classes.sectionName}>
        {name}
        {issues.length > 0 && (
          <span className={classes.problems}>{issues.length === 1 ? "1 problem" : `${issues.length} problems`}</span>
        )}
      </summary>
      {shown && <div className={classes.body}>{children}</div>}
    </details>
  );
}
