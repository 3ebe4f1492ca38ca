import { SegmentedControl } from "@mantine/core";
import { FormSection } from "@/components/ui/FormSection";
import { sectionDocs as docsOf } from "@/lib/spec/docs";
import { issueAt, issuesWithin } from "@/lib/spec/issues";
import { workloadOf, type Workload } from "../workload";
import { Field, Fields, type FieldsProps } from "./SpecFields";
import classes from "./Submit.module.css";

interface Props extends FieldsProps {
  /** Without it, the kind of workload stays what it is. */
  onWorkload?(workload: Workload): void;
}

const WORKLOADS = [
  { value: "model", label: "Model" },
  { value: "entrypoint", label: "Entry point" },
  { value: "script", label: "Script" },
];

/** Exactly one of model (with data), entrypoint and script. */
export function WorkloadSection(props: Props) {
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
