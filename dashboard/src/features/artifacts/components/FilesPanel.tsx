import { Button } from "@mantine/core";
import { IconAlertTriangle, IconDownload, IconFile, IconFolder } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { DataTable } from "@/components/ui/DataTable";
import { Notice } from "@/components/ui/Notice";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { bytes, count, plural } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import { useRefusal } from "@/lib/ownership";
import type { FolderPage, Job, LeftFile } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { archiveUrl, folderQuery } from "../api/files";
import { Breadcrumb } from "./Breadcrumb";
import { FilePreview } from "./FilePreview";
import { columnsAt, RemoveDialog, RowActions, type FileRow } from "./FileRow";
import classes from "./Files.module.css";

interface Props {
  job: Job;
  folder: string;
  onFolder(folder: string): void;
}

/** The files that the job has left in $PACELINE_ARTIFACTS, folder by folder. */
export function FilesPanel({ job, folder, onFolder }: Props) {
  const live = !isTerminal(job.state);
  const query = useInfiniteQuery(folderQuery(job.id, folder, live));
  const [opened, setOpened] = useState<LeftFile | null>(null);
  const [removing, setRemoving] = useState<LeftFile | null>(null);
  const first = query.data?.pages[0];
  return (
    <div className="stack">
      {first && first.not_kept.length > 0 && <NotKept sentences={first.not_kept} />}
      <Panel
        label="Artifacts"
        title={<Breadcrumb folder={folder} onFolder={onFolder} />}
        flush
        actions={first && first.files > 0 && <DownloadAll jobId={job.id} folder={folder} page={first} />}
      >
        <PanelStates
          source={query}
          what="the files"
          rows={5}
          isEmpty={({ pages }) => pages[0]!.files === 0}
          empty={<NoFiles live={live} folder={folder} arriving={first?.arriving ?? 0} onFolder={onFolder} />}
        >
          {({ pages }) => (
            <Listing
              job={job}
              pages={pages}
              more={query.hasNextPage ? () => void query.fetchNextPage() : null}
              loading={query.isFetchingNextPage}
              onFolder={onFolder}
              onOpen={setOpened}
              onRemove={setRemoving}
            />
          )}
        </PanelStates>
      </Panel>
      {opened && <FilePreview jobId={job.id} file={opened} onClose={() => setOpened(null)} />}
      {removing && <RemoveDialog jobId={job.id} file={removing} onClose={() => setRemoving(null)} />}
    </div>
  );
}

function NotKept({ sentences }: { sentences: readonly string[] }) {
  return (
    <Notice icon={IconAlertTriangle} label="Files that are not kept" title="Some files are not kept." tone="warn">
      <ul className={classes.notKept}>
        {sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </Notice>
  );
}

function DownloadAll({ jobId, folder, page }: { jobId: string; folder: string; page: FolderPage }) {
  return (
    <Button
      component="a"
      href={archiveUrl(jobId, folder)}
      download
      size="compact-xs"
      variant="default"
      leftSection={<IconDownload size={13} />}
    >
      {`Download ${folder ? "folder" : "all"} (${bytes(page.bytes)})`}
    </Button>
  );
}

function NoFiles({
  live,
  folder,
  arriving,
  onFolder,
}: {
  live: boolean;
  folder: string;
  arriving: number;
  onFolder: Props["onFolder"];
}) {
  if (folder) {
    return (
      <EmptyState
        title={`There is nothing in ${folder}`}
        action={
          <Button variant="default" size="compact-sm" onClick={() => onFolder("")}>
            All files
          </Button>
        }
      />
    );
  }
  return (
    <EmptyState title={arriving > 0 ? `${plural(arriving, "file")} on the way` : soFar("No files", live)}>
      A rank leaves files here by writing them to the folder <code>$PACELINE_ARTIFACTS</code>, or by{" "}
      <code>paceline.log_artifact(path)</code>. They are uploaded as soon as they are written.
    </EmptyState>
  );
}

interface ListingProps {
  job: Job;
  pages: readonly FolderPage[];
  more: (() => void) | null;
  loading: boolean;
  onFolder(folder: string): void;
  onOpen(file: LeftFile): void;
  onRemove(file: LeftFile): void;
}

function Listing({ job, pages, more, loading, onFolder, onOpen, onRemove }: ListingProps) {
  const now = useServerNow(10_000);
  const refused = useRefusal(job);
  const first = pages[0]!;
  const rows: FileRow[] = [
    ...first.folders.map((folder) => ({ folder })),
    ...pages.flatMap((page) => page.items.map((file) => ({ file }))),
  ];
  const columns = columnsAt(now, {
    name: (row) =>
      row.folder ? (
        <button type="button" className={classes.name} onClick={() => onFolder(row.folder.path)}>
          <IconFolder size={16} aria-hidden />
          {row.folder.name}
        </button>
      ) : (
        <button type="button" className={classes.name} onClick={() => onOpen(row.file)}>
          <IconFile size={16} aria-hidden />
          {row.file.name}
        </button>
      ),
    actions: (row) => <RowActions jobId={job.id} row={row} refused={refused} onRemove={onRemove} />,
  });
  return (
    <>
      <DataTable label="Files" rows={rows} columns={columns} rowId={({ folder, file }) => folder?.path ?? file!.path} />
      <p className={classes.total}>
        {`${count(first.files)} ${first.files === 1 ? "file" : "files"}, ${bytes(first.bytes)}`}
        {first.arriving > 0 && `, ${plural(first.arriving, "file")} on the way`}
        {more && (
          <Button size="compact-xs" variant="default" loading={loading} onClick={more}>
            Show more files
          </Button>
        )}
      </p>
    </>
  );
}
