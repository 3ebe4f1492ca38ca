import { ActionIcon, Autocomplete, Checkbox, MultiSelect, SegmentedControl, TextInput } from "@mantine/core";
import { IconX } from "@tabler/icons-react";
import { useState } from "react";
import { fieldAt } from "@/lib/spec/fields";
import { issueOf } from "@/lib/spec/issues";
import { isRecord, pointerOf, type Issue, type Path, type Schema } from "@/lib/spec/schema";
import { useSpelling } from "@/lib/useSpelling";
import { at, axesOf, choicesAt, jobPaths, STRATEGY, textOf, valuesFrom } from "../draft";
import classes from "./ExperimentForm.module.css";

interface Props {
  /** Of a job spec. */
  jobSchema: Schema;
  value: unknown;
  issues: readonly Issue[];
  onChange(path: Path, value: unknown): void;
}

/** What varies: ranks, strategies, and any field of the job by its path. */
export function AxesEditor({ jobSchema, value, issues, onChange }: Props) {
  const job = at(value, ["job"]);
  const axes = axesOf(value);
  const taken = new Set(axes.map(({ path }) => path));
  const free = jobPaths(jobSchema, job).filter((path) => !taken.has(path) && path !== STRATEGY);
  return (
    <div className={classes.axes}>
      <ScaleFields jobSchema={jobSchema} value={value} issues={issues} onChange={onChange} />
      {axes.map(({ path, values }) => (
        <AxisRow
          key={path}
          path={path}
          values={values}
          choices={choicesAt(jobSchema, path, job)}
          error={issueOf(issues, pointerOf(["grid", path]))}
          onValues={(next) => onChange(["grid", path], next)}
        />
      ))}
      <AddAxis
        paths={free}
        onAdd={(path) =>
          onChange(["grid", path], [at(job, path.split(".")) ?? choicesAt(jobSchema, path, job)?.[0] ?? 1])
        }
      />
    </div>
  );
}

function ScaleFields({ jobSchema, value, issues, onChange }: Props) {
  const worlds = at(value, ["world_sizes"]);
  const strategies = at(value, ["grid", STRATEGY]);
  const scaling = at(value, ["scaling"]) ?? "strong";
  const manyWorlds = Array.isArray(worlds) && worlds.length > 0;
  return (
    <div className={classes.scaleFields}>
      <ValuesField
        label="Ranks"
        pointer="/world_sizes"
        description="Numbers of ranks to run with, such as 1, 2, 4"
        values={worlds}
        error={issueOf(issues, "/world_sizes")}
        onValues={(next) => onChange(["world_sizes"], next)}
      />
      <MultiSelect
        label="Strategies"
        {...fieldAt(pointerOf(["grid", STRATEGY]))}
        error={issueOf(issues, pointerOf(["grid", STRATEGY]))}
        description="Leave blank to use the base job's value"
        inputWrapperOrder={["label", "input", "description", "error"]}
        data={(choicesAt(jobSchema, STRATEGY, at(value, ["job"])) ?? ["ddp", "fsdp"]).map(String)}
        value={Array.isArray(strategies) ? strategies.map(String) : []}
        clearable
        clearButtonProps={{ "aria-label": "Clear strategies" }}
        onChange={(next) => onChange(["grid", STRATEGY], next.length > 0 ? next : undefined)}
      />
      <div className={classes.scaling}>
        <SegmentedControl
          aria-label="Scaling"
          disabled={!manyWorlds}
          data={[
            { value: "strong", label: "Strong scaling" },
            { value: "weak", label: "Weak scaling" },
          ]}
          value={String(scaling)}
          onChange={(next) => onChange(["scaling"], next === "strong" ? undefined : next)}
        />
        <Checkbox
          label="Add a single process to compare with"
          checked={at(value, ["baseline"]) === true}
          onChange={(event) => onChange(["baseline"], event.currentTarget.checked || undefined)}
        />
      </div>
    </div>
  );
}

const PATH_LABEL = { className: "mono" };

interface AxisRowProps {
  path: string;
  values: unknown;
  choices: readonly unknown[] | null;
  error: string | undefined;
  onValues(values: unknown): void;
}

function AxisRow({ path, values, choices, error, onValues }: AxisRowProps) {
  const listed = Array.isArray(values) && choices !== null;
  const pointer = pointerOf(["grid", path]);
  return (
    <div className={classes.axis}>
      {listed ? (
        <MultiSelect
          label={path}
          labelProps={PATH_LABEL}
          {...fieldAt(pointer)}
          data={choices.map(String)}
          value={values.map(String)}
          error={error}
          onChange={(next) => onValues(choices.filter((choice) => next.includes(String(choice))))}
        />
      ) : (
        <ValuesField label={path} path {...{ pointer, values, error, onValues }} />
      )}
      <ActionIcon
        className={classes.remove}
        variant="subtle"
        color="gray"
        aria-label={`Do not vary ${path}`}
        onClick={() => onValues(undefined)}
      >
        <IconX size={15} />
      </ActionIcon>
    </div>
  );
}

interface ValuesFieldProps {
  label: string;
  pointer: string;
  /** The label is a path, as it is typed. */
  path?: boolean;
  description?: string;
  values: unknown;
  error: string | undefined;
  onValues(values: unknown): void;
}

/** Values as text, shown as typed. The document has them at once, so that leaving the field changes nothing; only an emptied field is taken over as it is left. */
function ValuesField({ label, pointer, path = false, description, values, error, onValues }: ValuesFieldProps) {
  const [edited, setEdited] = useState(false);
  const [text, setText] = useSpelling(values, valuesFrom, textOf, edited);
  const type = (next: string) => {
    setEdited(true);
    setText(next);
    if (valuesFrom(next) !== undefined) onValues(valuesFrom(next));
  };
  const commit = () => {
    if (edited && valuesFrom(text) === undefined) onValues(undefined);
    setEdited(false);
  };
  return (
    <TextInput
      label={label}
      {...fieldAt(pointer)}
      labelProps={path ? PATH_LABEL : undefined}
      description={
        description ?? (isRecord(values) ? "A range: first..last x count, with log for equal ratios" : undefined)
      }
      inputWrapperOrder={["label", "input", "description", "error"]}
      placeholder={path ? "1, 2, 4 or 1e-4..1e-1 x 4 log" : "1, 2, 4"}
      value={text}
      error={error}
      onChange={(event) => type(event.currentTarget.value)}
      onBlur={commit}
      onKeyDown={(event) => event.key === "Enter" && commit()}
    />
  );
}

const MOST_OFFERED = 40;

/** A path is taken when it is chosen, or with Enter: a path that the schema does not list may be one of a user's own. */
function AddAxis({ paths, onAdd }: { paths: readonly string[]; onAdd(path: string): void }) {
  const [typed, setTyped] = useState("");
  const [offering, setOffering] = useState(false);
  const add = (path: string) => {
    if (path.trim() === "") return;
    onAdd(path.trim());
    setTyped("");
    setOffering(false);
  };
  return (
    <Autocomplete
      size="xs"
      label="Vary another field"
      placeholder="Path, such as optimizer.lr"
      data={[...paths]}
      limit={MOST_OFFERED}
      maxDropdownHeight={280}
      dropdownOpened={offering}
      onDropdownOpen={() => setOffering(true)}
      onDropdownClose={() => setOffering(false)}
      value={typed}
      onChange={setTyped}
      onOptionSubmit={(path) => {
        add(path);
        queueMicrotask(() => setTyped(""));
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !event.defaultPrevented) add(typed);
      }}
    />
  );
}
