import { Button, Group } from "@mantine/core";
import { useEffect } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorState, LoadingState } from "@/components/ui/Panel";
import { clock } from "@/lib/format";
import type { User } from "@/lib/types";
import { useLoginLink } from "../api/people";
import classes from "./People.module.css";

/** A link that signs one browser in as this user; it is made when the dialog opens, and shown once. */
export function LoginLinkDialog({ user: { id, name, role }, onClose }: { user: User; onClose(): void }) {
  const { mutate, data, error } = useLoginLink();
  useEffect(() => mutate(id), [mutate, id]);
  return (
    <Dialog onClose={onClose} title={`Login link for ${name}`} size="lg">
      {error ? <ErrorState error={error} what="a login link" onRetry={() => mutate(id)} /> : null}
      {!data && !error && <LoadingState rows={2} what="a login link" />}
      {data && (
        <div className="stack">
          <p className={classes.told}>
            Send this link to <strong>{name}</strong> over a channel that you trust: whoever opens it first is signed in
            as {name} with the role {role}. It works once, until {clock(data.expires_at)}, and is shown only here.
          </p>
          <CopyBox value={data.url} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Done
            </Button>
          </Group>
        </div>
      )}
    </Dialog>
  );
}
