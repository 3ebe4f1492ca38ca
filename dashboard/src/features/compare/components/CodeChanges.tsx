import { useQuery } from "@tanstack/react-query";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { PanelStates } from "@/components/ui/Panel";
import { plural } from "@/lib/format";
import { codeChangesQuery } from "../api/compare";
import { changedFiles, type ChangedFile } from "../verdict";
import classes from "./Compare.module.css";

const FIRST_SHOWN = 20;

/** The files by which the code of the second job differs from that of the first one. */
export function CodeChanges({ bundles }: { bundles: { since: string; bundle: string } }) {
  const query = useQuery(codeChangesQuery(bundles));
  return (
    <PanelStates source={query} what="the files that differ" rows={2}>
      {(changes) => {
        const files = changedFiles(changes);
        const more = changes.count - files.length;
        return (
          <>
            <DataTable
              label="Files that differ"
              rows={files}
              columns={FILES}
              rowId={({ path }) => path}
              first={FIRST_SHOWN}
            />
            {more > 0 && <p className={classes.none}>And {plural(more, "more file")}.</p>}
          </>
        );
      }}
    </PanelStates>
  );
}

const FILES: readonly Column<ChangedFile>[] = [
  { id: "path", header: "File", cell: ({ path }) => <code>{path}</code>, value: ({ path }) => path },
  { id: "how", header: "In the second run", cell: ({ how }) => how, value: ({ how }) => how },
];
