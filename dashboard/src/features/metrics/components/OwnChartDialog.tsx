import { Button, Group, MultiSelect, Select, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { Guarded } from "@/components/ui/Guarded";
import { ApiError, asApiError } from "@/lib/errors";
import { useRoleRefusal } from "@/lib/ownership";
import { chartsQuery, projectJobsQuery, useSaveChart } from "../api/charts";
import { AXES, AXIS_WORDS, type Axis } from "../axes";
import type { OwnChart } from "../ownCharts";

interface Props {
  /** The chart that is changed; a new one has no metrics yet. */
  chart: OwnChart;
  project: string;
  /** The job of the page, which every chart draws. */
  jobId: string;
  /** What the job has reported. */
  reported: readonly string[];
  onClose(): void;
}

/** As the coordinator limits them. */
const MOST_METRICS = 8;
const MOST_RUNS = 5;
const MOST_CHARACTERS = 100;
const AS_PAGE = "page";

/** Which metrics and runs a chart of one's own has, and what it is called. */
export function OwnChartDialog({ chart, project, jobId, reported, onClose }: Props) {
  const [wanted, setWanted] = useState(chart);
  const saving = useSaveChart(project);
  const refused = useRoleRefusal("member");
  const newest = useQuery(chartsQuery(project)).data?.find(({ id }) => id !== null && id === chart.id);
  const overtaken = saving.error instanceof ApiError && saving.error.code === "precondition_failed";
  const { names } = wanted;
  const change = (part: Partial<OwnChart>) => setWanted({ ...wanted, ...part });
  const save = () => {
    if (names.length === 0) return;
    const title = (wanted.title.trim() || names.join(", ")).slice(0, MOST_CHARACTERS);
    const revision = overtaken && newest ? newest.revision : wanted.revision;
    saving.mutate({ ...wanted, title, revision }, { onSuccess: onClose });
  };
  return (
    <Dialog onClose={onClose} title={chart.names.length > 0 ? `Edit ${chart.title}` : "Add a chart"} size="md">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <Stack gap="sm">
          <MultiSelect
            label="Metrics"
            placeholder={names.length === 0 ? "Choose one or more" : undefined}
            data={[...new Set([...names, ...reported])].sort()}
            value={[...names]}
            onChange={(chosen) => change({ names: chosen })}
            maxValues={MOST_METRICS}
            searchable
            openOnFocus={false} // it has the focus as the dialog opens, and the list covers what the dialog is about
            data-autofocus
          />
          <RunSelect {...{ project, jobId }} runs={wanted.runs} onRuns={(runs) => change({ runs })} />
          <TextInput
            label="Title"
            placeholder={names.join(", ")}
            value={wanted.title}
            maxLength={MOST_CHARACTERS}
            onChange={(event) => change({ title: event.currentTarget.value })}
          />
          <Drawing chart={wanted} onChange={change} />
          <Text size="sm" c="var(--muted)">
            A metric with another unit gets its own axis on the right. Everybody sees the chart in all jobs of project{" "}
            {project}.
          </Text>
          {saving.error && (
            <Text size="sm" c="var(--bad-text)" role="alert">
              {overtaken
                ? `${newest?.updatedBy ?? "Somebody"} changed this chart meanwhile. Save again to replace that change.`
                : asApiError(saving.error).message}
            </Text>
          )}
        </Stack>
        <Group justify="flex-end" mt="lg" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Guarded refused={refused}>
            <Button type="submit" disabled={names.length === 0} loading={saving.isPending}>
              Save chart
            </Button>
          </Guarded>
        </Group>
      </form>
    </Dialog>
  );
}

function RunSelect({
  project,
  jobId,
  runs,
  onRuns,
}: Pick<Props, "project" | "jobId"> & { runs: readonly string[]; onRuns(runs: string[]): void }) {
  const jobs = useQuery(projectJobsQuery(project)).data?.items ?? [];
  const known = jobs
    .filter(({ id }) => id !== jobId)
    .map(({ id, name }) => ({ value: id, label: `${name} (${id.slice(-4)})` }));
  const gone = runs.filter((id) => known.every(({ value }) => value !== id)).map((id) => ({ value: id, label: id }));
  return (
    <MultiSelect
      label="Other runs"
      placeholder={runs.length === 0 ? "None" : undefined}
      description="Drawn beside the job of the page, as a baseline"
      data={[...known, ...gone]}
      value={[...runs]}
      onChange={onRuns}
      maxValues={MOST_RUNS}
      searchable
    />
  );
}

function Drawing({ chart, onChange }: { chart: OwnChart; onChange(part: Partial<OwnChart>): void }) {
  return (
    <Group grow align="flex-start">
      <Select
        label="X axis"
        allowDeselect={false}
        value={chart.axis ?? AS_PAGE}
        data={[
          { value: AS_PAGE, label: "As the page" },
          ...AXES.map((axis) => ({ value: axis, label: AXIS_WORDS[axis].choice })),
        ]}
        onChange={(axis) => onChange({ axis: axis === AS_PAGE ? null : (axis as Axis) })}
      />
      <Select
        label="Scale"
        allowDeselect={false}
        value={chart.scale ?? AS_PAGE}
        data={[
          { value: AS_PAGE, label: "As the page" },
          { value: "linear", label: "Linear" },
          { value: "log", label: "Logarithmic" },
        ]}
        onChange={(scale) => onChange({ scale: scale === "linear" || scale === "log" ? scale : null })}
      />
    </Group>
  );
}
