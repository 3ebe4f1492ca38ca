import { Button, FocusTrap, MultiSelect, Popover, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconFilter } from "@tabler/icons-react";
import { useState } from "react";
import { facetsQuery } from "../api/jobs";
import { labelsOf, pairsOf } from "../labels";
import { AGES, ARCHIVED, orNone, sinceInWords, TRIALS, type Archived, type JobFilter, type Trials } from "../view";
import classes from "./JobFilters.module.css";

interface Props {
  filter: JobFilter;
  onChange(change: Partial<JobFilter>): void;
}

/** The filters that are not needed every day. */
export function FilterMenu({ filter, onChange }: Props) {
  const [opened, setOpened] = useState(false);
  return (
    <Popover opened={opened} onChange={setOpened} width={300} position="bottom-start" trapFocus hideDetached={false}>
      <Popover.Target>
        <Button variant="default" leftSection={<IconFilter size={14} />} onClick={() => setOpened(!opened)}>
          Filter
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label="Filters" className={classes.menu}>
        {/* Focus on the first field would open its list. */}
        <FocusTrap.InitialFocus />
        <FilterFields filter={filter} onChange={onChange} />
      </Popover.Dropdown>
    </Popover>
  );
}

/** Inside the popover, which a click elsewhere closes. */
const WITHIN = { withinPortal: false, hideDetached: false };

function FilterFields({ filter, onChange }: Props) {
  const { data } = useQuery(facetsQuery);
  const labels = Object.entries(data?.labels ?? {}).flatMap(([name, values]) =>
    values.map((value) => `${name}=${value}`),
  );
  const lists = [
    ["project", "Project", data?.projects],
    ["user", "User", data?.users],
    ["model", "Model", data?.models],
    ["label", "Label", labels],
  ] as const;
  return (
    <>
      {lists.map(([part, name, known = []]) => (
        <MultiSelect
          key={part}
          label={name}
          placeholder={filter[part]?.length ? undefined : "Any"}
          data={[...new Set([...known, ...(filter[part] ?? [])])]}
          value={filter[part] ?? []}
          searchable
          clearable
          limit={100}
          nothingFoundMessage="Nothing matches"
          comboboxProps={WITHIN}
          clearButtonProps={{ "aria-label": `Clear ${name}` }}
          onChange={(values) => onChange({ [part]: orNone(part === "label" ? pairsOf(labelsOf(values)) : values) })}
        />
      ))}
      <Choice
        label="Submitted"
        placeholder="Any time"
        data={ages(filter.since)}
        value={filter.since}
        onChoose={(since) => onChange({ since })}
      />
      <Choice
        label="Trials of experiments"
        placeholder="With trials"
        data={options(TRIALS)}
        value={filter.trials}
        onChoose={(trials) => onChange({ trials: trials as Trials | undefined })}
      />
      <Choice
        label="Archive"
        placeholder="Without archived jobs"
        data={options(ARCHIVED)}
        value={filter.archived}
        onChoose={(archived) => onChange({ archived: archived as Archived | undefined })}
      />
    </>
  );
}

interface ChoiceProps {
  label: string;
  placeholder: string;
  data: Option[];
  value: string | undefined;
  onChoose(value: string | undefined): void;
}

/** One value or none. */
function Choice({ value, onChoose, ...field }: ChoiceProps) {
  return (
    <Select
      {...field}
      value={value ?? null}
      clearable
      comboboxProps={WITHIN}
      onChange={(chosen) => onChoose(chosen ?? undefined)}
    />
  );
}

interface Option {
  value: string;
  label: string;
}

const options = (labels: Record<string, string>): Option[] =>
  Object.entries(labels).map(([value, label]) => ({ value, label }));

/** What can be chosen, and what an address may have beside that. */
function ages(since: string | undefined) {
  const known = options(AGES);
  return since === undefined || since in AGES ? known : [...known, { value: since, label: sinceInWords(since) }];
}
