import { Select, SegmentedControl } from "@mantine/core";
import type { KeyboardEvent } from "react";
import { FormSection } from "@/components/ui/FormSection";
import { SchemaField } from "@/components/ui/SchemaField";
import { sentence, title } from "@/lib/format";
import { fieldDocs, sectionDocs as docsOf } from "@/lib/spec/docs";
import { FIELD, fieldAt } from "@/lib/spec/fields";
import { issueAt, issuesWithin } from "@/lib/spec/issues";
import {
  concrete,
  isRecord,
  pathOf,
  pointerOf,
  resolve,
  variantsOf,
  type Issue,
  type Path,
  type Schema,
} from "@/lib/spec/schema";
import { CodeDrop } from "./CodeDrop";
import { changed, whyNoCommunication, whyUnused, withSection } from "../communication";
import { has, workloadOf, type Workload } from "../workload";
import classes from "./Submit.module.css";

interface Props {
  schema: Schema;
  value: unknown;
  issues: readonly Issue[];
  onChange(path: Path, value: unknown): void;
  /** Fields of the job itself that are not shown. */
  without?: readonly string[];
  /** Without it, the kind of workload stays what it is. */
  onWorkload?(workload: Workload): void;
}

const JOB_FIELDS = [
  "name",
  "project",
  "priority",
  "time_limit",
  "precision",
  "compile",
  "reproducible",
  "initial_weights",
  "description",
  "labels",
];
const SECTIONS = [
  "resources",
  "training",
  "optimizer",
  "schedule",
  "parallelism",
  "communication",
  "checkpoint",
  "fault_tolerance",
  "environment",
  "profile",
  "gradients",
];
const OPEN = new Set(["resources", "training", "optimizer"]);
/** Drawn by hand: nobody types a digest. */
const CODE = "/environment/code";
const WORKLOADS = [
  { value: "model", label: "Model" },
  { value: "entrypoint", label: "Entry point" },
  { value: "script", label: "Script" },
];

/** The spec as a form, laid out by hand, every field drawn from the schema. */
export function SpecForm({ value, onChange, ...rest }: Props) {
  const change = (path: Path, next: unknown) => onChange(...changed(value, path, next));
  return <Sections {...rest} value={withSection(value)} onChange={change} />;
}

function Sections(props: Props) {
  const properties = props.schema.properties ?? {};
  const own = JOB_FIELDS.filter((name) => !props.without?.includes(name));
  return (
    // F1 in a field opens its documentation: the links beside the labels are no stops of the Tab key, which would be twice as many.
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions -- it only hears a key that its fields leave
    <div className={classes.form} onKeyDown={(event) => openDocs(event, props)}>
      <FormSection
        name="Job"
        open
        docs={docsOf("the-document-itself")}
        issues={ofTheJob(props.issues, own, properties)}
      >
        <div className={classes.fields}>
          {own
            .filter((name) => properties[name] && isShown(props, [name]))
            .map((name) => (
              <Field key={name} {...props} path={[name]} schemaOf={properties[name]!} />
            ))}
          <Strangers issues={props.issues} path={[]} known={Object.keys(properties)} />
        </div>
      </FormSection>
      <WorkloadSection {...props} />
      {SECTIONS.filter((name) => properties[name] && isShown(props, [name])).map((name) => (
        <FormSection
          key={name}
          name={title(name)}
          open={OPEN.has(name)}
          issues={issuesWithin(props.issues, `/${name}`)}
          own={issueAt(props.issues, `/${name}`)}
          docs={docsOf(name)}
          note={name === "communication" ? whyNoCommunication(props.value) : null}
        >
          <div className={classes.fields}>
            <Fields {...props} path={[name]} />
          </div>
        </FormSection>
      ))}
    </div>
  );
}

function openDocs(event: KeyboardEvent, { value, schema }: Pick<Props, "value" | "schema">) {
  const pointer = event.key === "F1" ? (event.target as Element).getAttribute(FIELD) : null;
  if (pointer === null) return;
  event.preventDefault();
  window.open(fieldDocs(pathOf(pointer), value, schema), "_blank", "noopener");
}

/** Those of its own fields, and of names that are no fields of a job. */
function ofTheJob(issues: readonly Issue[], own: readonly string[], known: Record<string, Schema>): Issue[] {
  return issues.filter(({ pointer }) => {
    const [name] = pathOf(pointer);
    return name !== undefined && (own.includes(name) || !(name in known));
  });
}

/** What the workload has, and what is wrong. */
function isShown({ value, issues }: Props, path: Path): boolean {
  return has(workloadOf(value), path) || issuesWithin(issues, pointerOf(path)).length > 0;
}

/** Exactly one of model (with data), entrypoint and script. */
function WorkloadSection(props: Props) {
  const { value, issues, onWorkload } = props;
  const chosen = workloadOf(value);
  const within = ["/model", "/data", "/entrypoint", "/script"].flatMap((pointer) => issuesWithin(issues, pointer));
  return (
    <FormSection
      name="Workload"
      open
      docs={docsOf("model")}
      issues={within}
      own={issueAt(issues, "") ?? issueAt(issues, "/script")}
    >
      <div className={classes.fields}>
        {onWorkload && (
          <SegmentedControl
            className={classes.wide}
            aria-label="Kind of workload"
            data={WORKLOADS}
            value={chosen}
            onChange={(next) => onWorkload(next as Workload)}
          />
        )}
        {chosen === "entrypoint" ? (
          <Field {...props} path={["entrypoint"]} schemaOf={props.schema.properties!.entrypoint!} />
        ) : (
          (chosen === "script" ? ["script"] : ["model", "data"]).map((name) => (
            <Fields key={name} {...props} path={[name]} named />
          ))
        )}
      </div>
    </FormSection>
  );
}

/** The fields of one part; of a tagged union, the choice and then the fields of the chosen variant. */
function Fields(props: Props & { path: Path; named?: boolean }) {
  const { schema, path, named, issues, onChange } = props;
  const name = String(path[0]);
  const outer = resolve(schema, schema.properties![name]!);
  const value = at(props.value, path) ?? outer.default;
  const part = concrete(schema, outer, value);
  const variants = variantsOf(schema, outer);
  const tag = outer.discriminator?.propertyName;
  return (
    <>
      {variants && (
        <Select
          className={classes.wide}
          label={named ? title(name) : "Kind"}
          data={Object.keys(variants)}
          value={isRecord(value) ? String(value.kind ?? "") : null}
          allowDeselect={false}
          {...fieldAt(pointerOf([...path, "kind"]))}
          error={issueAt(issues, pointerOf([...path, "kind"])) ?? (named ? issueAt(issues, pointerOf(path)) : null)}
          onChange={(kind) => kind && onChange(path, { kind })}
        />
      )}
      {Object.entries(part.properties ?? {})
        .filter(([field]) => field !== tag && isShown(props, [...path, field]))
        .map(([field, schemaOf]) => (
          <Field key={field} {...props} path={[...path, field]} schemaOf={schemaOf} />
        ))}
      <Strangers
        issues={issues}
        path={path}
        known={[...Object.keys(part.properties ?? {}), ...(variants ? ["kind"] : [])]}
      />
    </>
  );
}

/** What is wrong at names that are no fields, and so have no input of their own. */
function Strangers({ issues, path, known }: { issues: readonly Issue[]; path: Path; known: readonly string[] }) {
  const fields = new Set([pointerOf(path), ...known.map((name) => pointerOf([...path, name]))]);
  const strange = issuesWithin(issues, pointerOf(path)).filter(
    ({ pointer }) => !fields.has(pointerOf(pathOf(pointer).slice(0, path.length + 1))),
  );
  return strange.map(({ pointer, message }) => (
    <p key={pointer} className={classes.stranger} role="alert">
      {sentence(message)}
    </p>
  ));
}

function Field({
  schema,
  path,
  schemaOf,
  value,
  issues,
  onChange,
}: Omit<Props, "onWorkload" | "without"> & { path: Path; schemaOf: Schema }) {
  const here = at(value, path);
  if (pointerOf(path) === CODE) return <CodeDrop value={here} onChange={(code) => onChange(path, code)} />;
  return (
    <SchemaField
      path={path}
      schema={concrete(schema, schemaOf, here)}
      docs={fieldDocs(path, value, schema)}
      unused={path[0] === "communication" ? whyUnused(value, String(path[1])) : null}
      value={here}
      issues={issues}
      onChange={onChange}
    />
  );
}

function at(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((inner, part) => (isRecord(inner) ? inner[part] : undefined), value);
}
