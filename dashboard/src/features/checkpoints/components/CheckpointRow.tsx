import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { IconDownload, IconPackage, IconPin, IconPinnedOff, IconTrash } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { Guarded } from "@/components/ui/Guarded";
import { StateBadge } from "@/components/ui/StateBadge";
import { bytes, count, plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { Checkpoint } from "@/lib/types";
import { useDelete } from "../api/checkpoints";
import classes from "./Checkpoints.module.css";
import { DownloadDialog } from "./DownloadDialog";

/** Asks whether to delete a checkpoint, and says what is lost. */
export function DeleteDialog({ checkpoint, onClose }: { checkpoint: Checkpoint; onClose(): void }) {
  const remove = useDelete();
  return (
    <Confirm
      opened
      title={`Delete the checkpoint of step ${count(checkpoint.step)}?`}
      verb="Delete checkpoint"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(checkpoint, { onSuccess: onClose })}
    >
      <DeletionLoss checkpoint={checkpoint} />
    </Confirm>
  );
}

function DeletionLoss({ checkpoint }: { checkpoint: Checkpoint }) {
  const facts = [
    `${bytes(checkpoint.bytes)} of step ${count(checkpoint.step)} are removed from disk and cannot be restored.`,
    checkpoint.latest && "It is the newest one: a restart would fall back to an older step.",
    checkpoint.best && "It is the best one of this job.",
    checkpoint.pinned && "It is pinned.",
    checkpoint.used_by.length > 0 &&
      `${plural(checkpoint.used_by.length, "unfinished job")} started from it: ${checkpoint.used_by.map(({ job_name }) => job_name).join(", ")}.`,
  ].filter(Boolean);
  return (
    <>
      {facts.map((fact) => (
        <p key={String(fact)} className={classes.fact}>
          {fact}
        </p>
      ))}
    </>
  );
}

export function Marks({
  checkpoint: { state, latest, best, pinned, deleted_next, damage },
}: {
  checkpoint: Checkpoint;
}) {
  return (
    <span className={classes.marks} title={damage ?? undefined}>
      <StateBadge state={state}>{state === "committed" ? "verified" : state}</StateBadge>
      {latest && (
        <StateBadge state="latest" tone="active">
          latest
        </StateBadge>
      )}
      {best && (
        <StateBadge state="best" tone="good">
          best
        </StateBadge>
      )}
      {pinned && <StateBadge state="pinned">pinned</StateBadge>}
      {deleted_next && (
        <StateBadge state="next" tone="warn">
          next to be deleted
        </StateBadge>
      )}
    </span>
  );
}

interface RowProps {
  checkpoint: Checkpoint;
  /** Why this user may not delete or unpin it; null if allowed. */
  refused: string | null;
  onRestore(): void;
  onPin(): void;
  onDelete(): void;
}

export function RowActions({ checkpoint, refused, onRestore, onPin, onDelete }: RowProps) {
  const { step, state, pinned } = checkpoint;
  const refusedToRole = useRoleRefusal("member");
  const [downloading, setDownloading] = useState(false);
  if (state === "deleted" || state === "deleting") return null;
  const pinLabel = `${pinned ? "Unpin" : "Pin"} the checkpoint of step ${step}`;
  return (
    <span className={classes.actions}>
      {(state === "committed" || state === "superseded") && (
        <Guarded refused={refusedToRole}>
          <Button size="compact-xs" variant="default" onClick={onRestore} aria-label={`Restore from step ${step}`}>
            Restore
          </Button>
        </Guarded>
      )}
      <Tooltip label="Download">
        <ActionIcon
          variant="subtle"
          color="gray"
          size="sm"
          aria-label={`Download the checkpoint of step ${step}`}
          onClick={() => setDownloading(true)}
        >
          <IconDownload size={15} />
        </ActionIcon>
      </Tooltip>
      {(state === "committed" || state === "superseded") && (
        <Guarded refused={refusedToRole} hint="Register as a model">
          <ActionIcon
            component={Link}
            to="/models"
            search={{ checkpoint: checkpoint.id } as never}
            variant="subtle"
            color="gray"
            size="sm"
            aria-label={`Register the checkpoint of step ${step} as a model`}
          >
            <IconPackage size={15} />
          </ActionIcon>
        </Guarded>
      )}
      {downloading && <DownloadDialog checkpoint={checkpoint} onClose={() => setDownloading(false)} />}
      <Guarded
        refused={pinned ? refused : refusedToRole}
        hint={pinned ? "Unpin" : "Pin: keep it whatever the retention"}
      >
        <ActionIcon variant="subtle" color="gray" size="sm" aria-label={pinLabel} onClick={onPin}>
          {pinned ? <IconPinnedOff size={15} /> : <IconPin size={15} />}
        </ActionIcon>
      </Guarded>
      <Guarded refused={refused} hint="Delete">
        <ActionIcon
          variant="subtle"
          color="gray"
          size="sm"
          aria-label={`Delete the checkpoint of step ${step}`}
          onClick={onDelete}
        >
          <IconTrash size={15} />
        </ActionIcon>
      </Guarded>
    </span>
  );
}
