import { Button, MultiSelect, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch, IconX } from "@tabler/icons-react";
import { useState } from "react";
import { JOB_STATES } from "@/lib/jobs";
import type { JobState } from "@/lib/types";
import { chipsOf, orNone, type JobFilter } from "../view";
import { FilterMenu } from "./FilterMenu";
import classes from "./JobFilters.module.css";

const TYPING_PAUSE_MS = 250;

interface Props {
  filter: JobFilter;
  onChange(change: Partial<JobFilter>): void;
}

export function JobFilters({ filter, onChange }: Props) {
  const [text, setText] = useState(filter.q ?? "");
  const [asked, setAsked] = useState(filter.q);
  if (filter.q !== asked) {
    // From elsewhere: another view, or all filters were cleared.
    setAsked(filter.q);
    setText(filter.q ?? "");
  }
  const search = useDebouncedCallback((typed: string) => {
    const q = typed.trim() || undefined;
    setAsked(q);
    onChange({ q });
  }, TYPING_PAUSE_MS);
  return (
    <>
      <TextInput
        aria-label="Search jobs"
        placeholder="Name, description, label or note"
        value={text}
        className={classes.search}
        leftSection={<IconSearch size={14} aria-hidden />}
        onChange={(event) => {
          setText(event.currentTarget.value);
          search(event.currentTarget.value);
        }}
      />
      <MultiSelect
        aria-label="Filter by state"
        placeholder={filter.status?.length ? undefined : "Any state"}
        data={[...JOB_STATES]}
        value={filter.status ?? []}
        onChange={(status) => onChange({ status: orNone(status as JobState[]) })}
        clearable
        w={filter.status?.length ? 260 : 130}
        clearButtonProps={{ "aria-label": "Clear state filter" }}
      />
      <FilterMenu filter={filter} onChange={onChange} />
      {chipsOf(filter).map(({ name, value, rest }) => (
        <FilterChip key={`${name} ${value}`} name={name} value={value} onRemove={() => onChange(rest)} />
      ))}
    </>
  );
}

interface ChipProps {
  name: string;
  value: string;
  onRemove(): void;
}

/** A filter that is on, and the way to take it off. */
export function FilterChip({ name, value, onRemove }: ChipProps) {
  return (
    <Button
      variant="light"
      className={classes.chip}
      rightSection={<IconX size={14} aria-hidden />}
      aria-label={`${name} ${value}: remove this filter`}
      onClick={onRemove}
    >
      {name}: {value}
    </Button>
  );
}
