import { ActionIcon, Select } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import { IconX } from "@tabler/icons-react";
import { useState } from "react";
import { Keyed } from "@/components/ui/StackedBar";
import { StateBadge } from "@/components/ui/StateBadge";
import { asApiError } from "@/lib/errors";
import { dateTime } from "@/lib/format";
import { jobQuery } from "@/lib/jobQuery";
import { jobListQuery } from "../api/jobs";
import classes from "./Jobs.module.css";

interface Props {
  chosen: readonly string[];
  most: number;
  onChange(chosen: string[]): void;
}

/** The jobs that are chosen, each in its colour, and a search for another one. */
export function JobPicker({ chosen, most, onChange }: Props) {
  return (
    <div className={classes.picker} role="group" aria-label="Jobs to compare">
      {chosen.length > 0 && <Chosen ids={chosen} onRemove={(id) => onChange(chosen.filter((other) => other !== id))} />}
      {chosen.length < most ? (
        <AddJob chosen={chosen} onAdd={(id) => onChange([...chosen, id])} />
      ) : (
        <span className="muted">At most {most} jobs at once.</span>
      )}
    </div>
  );
}

function Chosen({ ids, onRemove }: { ids: readonly string[]; onRemove(id: string): void }) {
  const jobs = useQueries({ queries: ids.map(jobQuery) });
  return (
    <ul className={classes.chosen}>
      {ids.map((id, index) => {
        const { data, error } = jobs[index]!;
        const name = data?.name ?? id;
        return (
          <li key={id} className={classes.chosenJob}>
            <Keyed color={`--series-${index + 1}`}>
              <span className={classes.chosenName}>{name}</span>
            </Keyed>
            {data && <StateBadge state={data.state} />}
            {error && (
              <span className={classes.unknownJob} role="alert">
                {asApiError(error).code}
              </span>
            )}
            <ActionIcon
              variant="subtle"
              color="gray"
              size="xs"
              aria-label={`Remove ${name}`}
              onClick={() => onRemove(id)}
            >
              <IconX size={13} />
            </ActionIcon>
          </li>
        );
      })}
    </ul>
  );
}

function AddJob({ chosen, onAdd }: { chosen: readonly string[]; onAdd(id: string): void }) {
  const [text, setText] = useState("");
  const query = useQuery(jobListQuery({ q: text || undefined }));
  const others = (query.data?.items ?? []).filter(({ id }) => !chosen.includes(id));
  return (
    <Select
      key={chosen.join()}
      aria-label="Add a job"
      placeholder={chosen.length === 0 ? "Choose a job" : "Add another job"}
      w={280}
      searchable
      value={null}
      onSearchChange={setText}
      data={others.map(({ id, name, created_at }) => ({ value: id, label: `${name} · ${dateTime(created_at)}` }))}
      filter={({ options }) => options}
      nothingFoundMessage={query.error ? asApiError(query.error).message : "No such job"}
      onChange={(id) => id && onAdd(id)}
    />
  );
}
