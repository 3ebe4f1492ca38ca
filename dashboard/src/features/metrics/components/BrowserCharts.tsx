import { Button, Group } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { IconShare } from "@tabler/icons-react";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { Notice } from "@/components/ui/Notice";
import { plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import { useShareCharts } from "../api/charts";
import { browserKey, NEW_CHART, parseCharts, type BrowserChart } from "../ownCharts";

const MOST_METRICS = 8;

/** Charts that an earlier version kept in this browser: asks once whether the project gets them. */
export function BrowserCharts({ project }: { project: string }) {
  const [charts, , forget] = useLocalStorage<readonly BrowserChart[]>({
    key: browserKey(project),
    defaultValue: [],
    getInitialValueInEffect: false,
    deserialize: parseCharts,
  });
  const sharing = useShareCharts(project);
  const refused = useRoleRefusal("member");
  if (charts.length === 0) return null;
  const share = () =>
    sharing.mutate(
      charts.map(({ id, title, names }) => ({
        key: `browser-chart-${id}`,
        chart: { ...NEW_CHART, title: title.slice(0, 100) || names[0]!, names: names.slice(0, MOST_METRICS) },
      })),
      { onSuccess: forget },
    );
  return (
    <Notice
      icon={IconShare}
      label="Charts in this browser"
      title={`${plural(charts.length, "chart")} only in this browser`}
      action={
        <Group gap="xs">
          <Button variant="default" size="compact-sm" onClick={forget}>
            Discard
          </Button>
          <Guarded refused={refused}>
            <Button size="compact-sm" loading={sharing.isPending} onClick={share}>
              Share with project
            </Button>
          </Guarded>
        </Group>
      }
    >
      <div>
        {charts.map(({ title }) => title).join(", ")}: charts are now kept for everybody in project {project}.
        {sharing.error && (
          <p role="alert">
            <ErrorText error={sharing.error} />
          </p>
        )}
      </div>
    </Notice>
  );
}
