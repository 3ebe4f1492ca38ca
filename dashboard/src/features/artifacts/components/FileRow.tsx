import { ActionIcon, Tooltip } from "@mantine/core";
import { IconDownload, IconTrash } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Confirm } from "@/components/ui/Confirm";
import type { Column } from "@/components/ui/DataTable";
import { Guarded } from "@/components/ui/Guarded";
import { age, bytes, count } from "@/lib/format";
import type { LeftFile, LeftFolder } from "@/lib/types";
import { archiveUrl, fileUrl, useRemoveFile } from "../api/files";
import classes from "./Files.module.css";

/** A line of the listing: a folder, or a file. */
export type FileRow = { folder: LeftFolder; file?: undefined } | { file: LeftFile; folder?: undefined };

export function RowActions({
  jobId,
  row,
  refused,
  onRemove,
}: {
  jobId: string;
  row: FileRow;
  refused: string | null;
  onRemove(file: LeftFile): void;
}) {
  const { folder, file } = row;
  const name = folder?.name ?? file!.name;
  return (
    <span className={classes.actions}>
      <Tooltip label={folder ? "Download as a zip" : "Download"}>
        <ActionIcon
          component="a"
          href={folder ? archiveUrl(jobId, folder.path) : fileUrl(jobId, file!.path)}
          download={folder ? true : name}
          variant="subtle"
          aria-label={`Download ${name}`}
        >
          <IconDownload size={15} />
        </ActionIcon>
      </Tooltip>
      {file && (
        <Guarded refused={refused} hint="Delete">
          <ActionIcon variant="subtle" color="red" aria-label={`Delete ${name}`} onClick={() => onRemove(file)}>
            <IconTrash size={15} />
          </ActionIcon>
        </Guarded>
      )}
    </span>
  );
}

/** Asks whether to delete a file, and says what is lost. */
export function RemoveDialog({ jobId, file, onClose }: { jobId: string; file: LeftFile; onClose(): void }) {
  const remove = useRemoveFile(jobId);
  return (
    <Confirm
      opened
      title={`Delete ${file.name}?`}
      verb="Delete file"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(file, { onSuccess: onClose })}
    >
      <p>{`${file.path}, ${bytes(file.bytes)}: it cannot be restored.`}</p>
    </Confirm>
  );
}

interface Cells {
  name(row: FileRow): ReactNode;
  actions(row: FileRow): ReactNode;
}

export function columnsAt(now: number, cells: Cells): Column<FileRow>[] {
  const ago = (time: string) => `${age(now - Date.parse(time))} ago`;
  const either = ({ folder, file }: FileRow): LeftFolder | LeftFile => folder ?? file!;
  return [
    { id: "name", header: "Name", cell: cells.name, value: (row) => either(row).name },
    {
      id: "size",
      header: "Size",
      cell: (row) => bytes(either(row).bytes),
      value: (row) => either(row).bytes,
      numeric: true,
    },
    {
      id: "files",
      header: "Files",
      cell: ({ folder }) => folder && count(folder.files),
      value: ({ folder }) => folder?.files,
      numeric: true,
    },
    { id: "rank", header: "Rank", cell: ({ file }) => file?.rank, value: ({ file }) => file?.rank, numeric: true },
    {
      id: "changed",
      header: "Changed",
      cell: (row) => ago(either(row).changed_at),
      value: (row) => either(row).changed_at,
      numeric: true,
    },
    { id: "actions", header: "", cell: cells.actions, numeric: true },
  ];
}
