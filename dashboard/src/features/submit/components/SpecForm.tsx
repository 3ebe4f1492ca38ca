import { useDeferredValue, type KeyboardEvent } from "react";
import { FormSection } from "@/components/ui/FormSection";
import { title } from "@/lib/format";
import { fieldDocs, sectionDocs as docsOf } from "@/lib/spec/docs";
import { FIELD } from "@/lib/spec/fields";
import { issueAt, issuesWithin } from "@/lib/spec/issues";
import { pathOf, type Issue, type Schema, type Path } from "@/lib/spec/schema";
import { changed, whyNoCommunication, withSection } from "../communication";
import type { Workload } from "../workload";
import { Field, Fields, isShown, Strangers, type FieldsProps } from "./SpecFields";
import classes from "./Submit.module.css";
import { WorkloadSection } from "./WorkloadSection";

interface Props extends FieldsProps {
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

/** The spec as a form, laid out by hand, every field drawn from the schema. */
export function SpecForm({ value, onChange, ...rest }: Props) {
  const change = (path: Path, next: unknown) => onChange(...changed(value, path, next));
  return <Sections {...rest} value={withSection(value)} onChange={change} />;
}

function Sections(props: Props) {
  const properties = props.schema.properties ?? {};
  const own = JOB_FIELDS.filter((name) => !props.without?.includes(name));
  const isWhole = useDeferredValue(true, false); // what is below the first screen is drawn after it
  const sections = isWhole ? SECTIONS : [];
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
      {sections
        .filter((name) => properties[name] && isShown(props, [name]))
        .map((name) => (
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
