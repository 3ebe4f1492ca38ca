import { Button } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { Facts } from "@/components/ui/Facts";
import { Panel } from "@/components/ui/Panel";
import { count, plural } from "@/lib/format";
import type { JobSpec } from "@/lib/types";

type Code = NonNullable<NonNullable<NonNullable<JobSpec>["environment"]>["code"]>;

/** Of a folder that a browser has sent, that lies in no git repository, or of which git did not answer: the spec does not say which. */
const NOT_KNOWN = "not known";
const MOST_NAMED = 5;
/** A job spec lists no more files than these, however many differ. */
const MOST_LISTED = 100;

/** The code that was sent along with a job: where it came from, and the way to get it back. */
export function CodeFacts({ code }: { code: Code }) {
  const changed = code.uncommitted ?? [];
  const isOfGit = Boolean(code.commit ?? code.branch);
  const facts = [
    { name: "Folder", value: code.folder ?? NOT_KNOWN },
    { name: "Commit", value: code.commit?.slice(0, 12) ?? (isOfGit ? "none yet" : NOT_KNOWN) },
    { name: "Branch", value: code.branch ?? (isOfGit ? "none" : NOT_KNOWN) },
    {
      name: "Uncommitted",
      value: isOfGit ? differing(changed.length) : NOT_KNOWN,
      hint: changed.length > 0 ? named(changed) : undefined,
    },
  ];
  return (
    <Panel
      title="Code"
      actions={
        <Button
          component="a"
          href={`/api/v1/training/bundles/${code.bundle}/content`}
          download
          size="compact-xs"
          variant="default"
          leftSection={<IconDownload size={13} />}
        >
          Download code
        </Button>
      }
    >
      <Facts facts={facts} size="sm" />
    </Panel>
  );
}

function differing(files: number): string {
  if (files === 0) return "no files";
  return `${plural(files, "file")}${files < MOST_LISTED ? "" : " or more"}`;
}

function named(files: readonly string[]): string {
  const more = files.length > MOST_NAMED ? ` and ${count(files.length - MOST_NAMED)} more` : "";
  return files.slice(0, MOST_NAMED).join(", ") + more;
}
