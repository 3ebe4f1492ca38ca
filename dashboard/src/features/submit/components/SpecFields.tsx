import { Select } from "@mantine/core";
import { SchemaField } from "@/components/ui/SchemaField";
import { sentence, title } from "@/lib/format";
import { fieldDocs } from "@/lib/spec/docs";
import { fieldAt } from "@/lib/spec/fields";
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
import type { SendFolder } from "../api/code";
import { whyUnused } from "../communication";
import { has, workloadOf } from "../workload";
import { CodeDrop } from "./CodeDrop";
import classes from "./Submit.module.css";

export interface FieldsProps {
  schema: Schema;
  value: unknown;
  issues: readonly Issue[];
  sendFolder: SendFolder;
  onChange(path: Path, value: unknown): void;
}

/** Drawn by hand: nobody types a digest. */
const CODE = "/environment/code";

/** What the workload has, and what is wrong. */
export function isShown({ value, issues }: Pick<FieldsProps, "value" | "issues">, path: Path): boolean {
  return has(workloadOf(value), path) || issuesWithin(issues, pointerOf(path)).length > 0;
}

/** The fields of one part; of a tagged union, the choice and then the fields of the chosen variant. */
export function Fields(props: FieldsProps & { path: Path; named?: boolean }) {
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
export function Strangers({ issues, path, known }: { issues: readonly Issue[]; path: Path; known: readonly string[] }) {
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

export function Field({
  schema,
  path,
  schemaOf,
  value,
  issues,
  sendFolder,
  onChange,
}: FieldsProps & { path: Path; schemaOf: Schema }) {
  const here = at(value, path);
  if (pointerOf(path) === CODE)
    return <CodeDrop value={here} send={sendFolder} onChange={(code) => onChange(path, code)} />;
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
