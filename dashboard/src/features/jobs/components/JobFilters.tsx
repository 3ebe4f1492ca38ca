import { MultiSelect, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { useState } from "react";
import { JOB_STATES } from "@/lib/jobs";
import type { JobState } from "@/lib/types";
import type { JobFilter } from "../api/jobs";

const TYPING_PAUSE_MS = 250;

export function JobFilters({ filter, onChange }: { filter: JobFilter; onChange(change: Partial<JobFilter>): void }) {
  const [text, setText] = useState(filter.q ?? "");
  const search = useDebouncedCallback((q: string) => onChange({ q: q || undefined }), TYPING_PAUSE_MS);
  return (
    <>
      <TextInput
        aria-label="Search jobs"
        placeholder="Search by name"
        value={text}
        w={220}
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
        onChange={(status) => onChange({ status: status.length ? (status as JobState[]) : undefined })}
        clearable
        w={filter.status?.length ? 300 : 160}
        clearButtonProps={{ "aria-label": "Clear state filter" }}
      />
    </>
  );
}
