import { Button, Menu } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { IconArchive, IconArchiveOff, IconArrowsDiff, IconDots, IconTag, IconTrash, IconX } from "@tabler/icons-react";
import { lazy, Suspense, useState } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { useRoleRefusal } from "@/lib/ownership";
import type { Bulk } from "./ChangeDialog";

/** Loaded when it is asked for: the list of jobs is the first page that a visitor waits for. */
const ChangeDialog = lazy(async () => ({ default: (await import("./ChangeDialog")).ChangeDialog }));

interface Props {
  ids: readonly string[];
  /** As many as the comparison can show. */
  mostCompared: number;
  onClear(): void;
}

/** What can be done with the jobs that are selected. */
export function Selection({ ids, mostCompared, onClear }: Props) {
  const [change, setChange] = useState<Bulk | null>(null);
  const refused = useRoleRefusal("member");
  return (
    <>
      <span className="hint" role="status">
        {ids.length} selected
      </span>
      <Button variant="default" onClick={onClear}>
        Clear
      </Button>
      {ids.length <= mostCompared ? (
        <Button
          variant="default"
          component={Link}
          to="/compare"
          search={{ jobs: ids } as never}
          leftSection={<IconArrowsDiff size={14} />}
        >
          {ids.length === 1 ? "Compare with…" : `Compare ${ids.length} jobs`}
        </Button>
      ) : (
        <Button variant="default" disabled title={`At most ${mostCompared} jobs can be compared.`}>
          Compare
        </Button>
      )}
      {refused === null ? (
        <Changes onChoose={setChange} />
      ) : (
        <Guarded refused={refused}>
          <Button leftSection={<IconDots size={14} />}>Change</Button>
        </Guarded>
      )}
      {change !== null && (
        <Suspense>
          <ChangeDialog bulk={change} ids={ids} onClose={() => setChange(null)} onDone={onClear} />
        </Suspense>
      )}
    </>
  );
}

function Changes({ onChoose }: { onChoose(change: Bulk): void }) {
  return (
    <Menu position="bottom-end" width={190} hideDetached={false}>
      <Menu.Target>
        <Button leftSection={<IconDots size={14} />}>Change</Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={<IconTag size={14} />} onClick={() => onChoose("label")}>
          Label or move…
        </Menu.Item>
        <Menu.Item leftSection={<IconArchive size={14} />} onClick={() => onChoose("archive")}>
          Archive…
        </Menu.Item>
        <Menu.Item leftSection={<IconArchiveOff size={14} />} onClick={() => onChoose("unarchive")}>
          Unarchive…
        </Menu.Item>
        <Menu.Divider />
        <Menu.Item leftSection={<IconX size={14} />} onClick={() => onChoose("cancel")}>
          Cancel…
        </Menu.Item>
        <Menu.Item color="var(--bad-text)" leftSection={<IconTrash size={14} />} onClick={() => onChoose("delete")}>
          Delete data…
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
