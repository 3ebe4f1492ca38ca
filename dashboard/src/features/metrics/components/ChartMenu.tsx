import { ActionIcon, Menu } from "@mantine/core";
import { IconDots, IconDownload, IconMaximize, IconMinimize, IconRulerMeasure } from "@tabler/icons-react";
import type { ReactNode } from "react";

export const FORMATS = ["png", "svg", "csv"] as const;
export type Format = (typeof FORMATS)[number];

interface Props {
  title: string;
  full: boolean;
  /** Whether the chart is drawn; as a table it has no picture. */
  drawn: boolean;
  /** Whether the left axis shows a part only. */
  zoomed: boolean;
  onFull(): void;
  onRange?(): void;
  onAllValues(): void;
  onSave(format: Format): void;
  children?: ReactNode;
}

/** What can be done with a chart. */
export function ChartMenu({ title, full, drawn, zoomed, onFull, onRange, onAllValues, onSave, children }: Props) {
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="sm" aria-label={`Actions for ${title}`}>
          <IconDots size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={full ? <IconMinimize size={14} /> : <IconMaximize size={14} />} onClick={onFull}>
          {full ? "Leave full screen" : "Full screen"}
        </Menu.Item>
        {onRange && (
          <Menu.Item leftSection={<IconRulerMeasure size={14} />} onClick={onRange}>
            Set value range…
          </Menu.Item>
        )}
        {zoomed && <Menu.Item onClick={onAllValues}>Show all values</Menu.Item>}
        <Menu.Divider />
        {FORMATS.map((format) => (
          <Menu.Item
            key={format}
            leftSection={<IconDownload size={14} />}
            disabled={format !== "csv" && !drawn}
            onClick={() => onSave(format)}
          >
            Download {format.toUpperCase()}
          </Menu.Item>
        ))}
        {children}
      </Menu.Dropdown>
    </Menu>
  );
}
