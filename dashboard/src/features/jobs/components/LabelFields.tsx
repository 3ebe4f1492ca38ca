import { TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { JobEdit } from "@/lib/types";
import { facetsQuery } from "../api/jobs";
import { labelsOf } from "../labels";
import { LabelInput } from "./LabelInput";
import classes from "./JobFilters.module.css";

interface Props {
  /** Why what stands in the field of new labels is none. */
  problem: string | null;
  onChange(edit: JobEdit): void;
  onProblem(problem: string | null): void;
}

/** Labels to add to several jobs, those to remove, and the project to move them to. */
export function LabelFields({ problem, onChange, onProblem }: Props) {
  const { data } = useQuery(facetsQuery);
  const [added, setAdded] = useState<string[]>([]);
  const [removed, setRemoved] = useState<string[]>([]);
  const [project, setProject] = useState("");
  const tell = (add: string[], remove: string[], to: string) => {
    const labels = { ...labelsOf(add), ...Object.fromEntries(remove.map((name) => [name, null])) };
    onChange({ ...(Object.keys(labels).length > 0 ? { labels } : {}), ...(to.trim() ? { project: to.trim() } : {}) });
  };
  return (
    <div className={classes.fields}>
      <LabelInput
        label="Add labels"
        value={added}
        problem={problem}
        onChange={(next) => {
          setAdded(next);
          tell(next, removed, project);
        }}
        onProblem={onProblem}
      />
      <TagsInput
        label="Remove labels"
        description="By their keys"
        data={Object.keys(data?.labels ?? {})}
        value={removed}
        onChange={(next) => {
          setRemoved(next);
          tell(added, next, project);
        }}
      />
      <TextInput
        label="Move to project"
        placeholder="Leave as it is"
        value={project}
        onChange={(event) => {
          setProject(event.currentTarget.value);
          tell(added, removed, event.currentTarget.value);
        }}
      />
    </div>
  );
}
