import { Button, Menu } from "@mantine/core";
import { IconChevronDown, IconDownload } from "@tabler/icons-react";
import { ErrorText } from "@/components/ui/ErrorText";
import { fileName } from "@/lib/files";
import { exportUrl, useFigureExport } from "../api/exports";
import classes from "./Experiments.module.css";
import type { HeatView } from "./HeatMap";

const DOCUMENTS = [
  { format: "html", label: "Report (HTML)", hint: "one file, with everything in it" },
  { format: "md", label: "Report (Markdown)", hint: "text and tables" },
  { format: "csv", label: "Configurations (CSV)", hint: "a row for each, with its figures" },
  { format: "json", label: "Analysis (JSON)", hint: "everything, as the API says it" },
] as const;

/** Names of the figures as the coordinator draws them. */
const FIGURES = [
  { figure: "scaling", label: "Scaling efficiency" },
  { figure: "throughput", label: "Throughput" },
  { figure: "step_time", label: "Step time split" },
  { figure: "memory", label: "Peak memory" },
  { figure: "loss", label: "Losses" },
  { figure: "heatmap", label: "Heat map" },
  { figure: "pareto", label: "Pareto front" },
] as const;

interface Props {
  experiment: { id: string; name: string };
  disabled: boolean;
  /** The heat map as it stands on the page; what is left out, the coordinator chooses. */
  heatMap: HeatView;
}

/** Files to keep, made by the coordinator from the newest analysis. */
export function ExportMenu({ experiment: { id, name }, disabled, heatMap }: Props) {
  const figures = useFigureExport(id);
  return (
    <>
      {figures.error && (
        <span className={classes.refused} role="alert">
          <ErrorText error={figures.error} alone />
        </span>
      )}
      <Menu position="bottom-end" width={250} withinPortal>
        <Menu.Target>
          <Button
            variant="default"
            leftSection={<IconDownload size={14} />}
            rightSection={<IconChevronDown size={13} />}
            disabled={disabled}
            loading={figures.isPending}
            title={disabled ? "There is no analysis to export yet" : undefined}
          >
            Export
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {DOCUMENTS.map(({ format, label, hint }) => (
            <Menu.Item key={format} component="a" href={exportUrl(id, { format })} download>
              {label}
              <div className="hint">{hint}</div>
            </Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Label>Figures</Menu.Label>
          {FIGURES.flatMap(({ figure, label }) =>
            (["svg", "png"] as const).map((format) => (
              <Menu.Item
                key={figure + format}
                onClick={() =>
                  figures.mutate({
                    query: { format, figure, ...(figure === "heatmap" ? askedOf(heatMap) : {}) },
                    name: `${fileName(name)}-${figure}.${format}`,
                  })
                }
              >
                {label} ({format.toUpperCase()})
              </Menu.Item>
            )),
          )}
        </Menu.Dropdown>
      </Menu>
    </>
  );
}

function askedOf({ x, y, figure }: HeatView): Record<string, string> {
  return { ...(x && { x }), ...(y && { y }), ...(figure && { value: figure }) };
}
