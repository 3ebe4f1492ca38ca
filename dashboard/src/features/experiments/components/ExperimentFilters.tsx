import { MultiSelect, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { useState } from "react";
import type { ExperimentState } from "@/lib/types";
import type { ExperimentFilter } from "../api/experiments";
import { EXPERIMENT_STATES } from "../experiments";

const TYPING_PAUSE_MS = 250;

interface Props {
  filter: ExperimentFilter;
  onChange(change: Partial<ExperimentFilter>): void;
}

export function ExperimentFilters({ filter, onChange }: Props) {
  return (
    <>
      <TypedFilter
        label="Search experiments"
        placeholder="Search by name"
        value={filter.q}
        onValue={(q) => onChange({ q })}
        search
      />
      <MultiSelect
        aria-label="Filter by state"
        placeholder={filter.status?.length ? undefined : "Any state"}
        data={[...EXPERIMENT_STATES]}
        value={filter.status ?? []}
        onChange={(status) => onChange({ status: status.length ? (status as ExperimentState[]) : undefined })}
        clearable
        w={filter.status?.length ? 280 : 150}
        clearButtonProps={{ "aria-label": "Clear state filter" }}
      />
      <TypedFilter
        label="Filter by project"
        placeholder="Any project"
        value={filter.project}
        onValue={(project) => onChange({ project })}
      />
    </>
  );
}

interface TypedProps {
  label: string;
  placeholder: string;
  value: string | undefined;
  search?: boolean;
  onValue(value: string | undefined): void;
}

/** Asked once the typing pauses. */
function TypedFilter({ label, placeholder, value, search = false, onValue }: TypedProps) {
  const [text, setText] = useState(value ?? "");
  const filterBy = useDebouncedCallback((typed: string) => onValue(typed || undefined), TYPING_PAUSE_MS);
  return (
    <TextInput
      aria-label={label}
      placeholder={placeholder}
      value={text}
      w={search ? 200 : 140}
      leftSection={search ? <IconSearch size={14} aria-hidden /> : undefined}
      onChange={(event) => {
        setText(event.currentTarget.value);
        filterBy(event.currentTarget.value);
      }}
    />
  );
}
