import { Button, Text } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Dialog } from "@/components/ui/Dialog";
import { PanelStates } from "@/components/ui/Panel";
import { bytes, count, plural } from "@/lib/format";
import type { Checkpoint, CheckpointFiles } from "@/lib/types";
import { checkpointFilesQuery, downloadUrl } from "../api/checkpoints";
import classes from "./Checkpoints.module.css";

/** A checkpoint as a file, or why it cannot be had from this coordinator. */
export function DownloadDialog({ checkpoint, onClose }: { checkpoint: Checkpoint; onClose(): void }) {
  const query = useQuery(checkpointFilesQuery(checkpoint.id));
  return (
    <Dialog onClose={onClose} title={`Download the checkpoint of step ${count(checkpoint.step)}`}>
      <PanelStates source={query} what="its files" rows={2}>
        {(files) => <Choices checkpoint={checkpoint} files={files} />}
      </PanelStates>
    </Dialog>
  );
}

function Choices({ checkpoint: { id }, files }: { checkpoint: Checkpoint; files: CheckpointFiles }) {
  if (!files.readable) {
    return (
      <Text size="sm" className={classes.reason}>
        {files.reason}
      </Text>
    );
  }
  const total = files.files.reduce((sum, file) => sum + file.bytes, 0);
  return (
    <div className="stack">
      <div>
        <Button
          component="a"
          href={downloadUrl(id, "safetensors")}
          download
          disabled={!files.weights}
          leftSection={<IconDownload size={15} />}
        >
          Weights as safetensors
        </Button>
        <Text size="xs" c="dimmed" mt={4}>
          {files.weights_reason ??
            "Parameters and buffers alone. They are written and compared first, so it takes a moment to begin."}
        </Text>
      </div>
      <div>
        <Button
          component="a"
          href={downloadUrl(id, "checkpoint")}
          download
          variant="default"
          leftSection={<IconDownload size={15} />}
        >
          Whole checkpoint as tar
        </Button>
        <Text size="xs" c="dimmed" mt={4}>
          {`${plural(files.files.length, "file")}, ${bytes(total)}: with the optimizer's state, to continue from.`}
        </Text>
      </div>
    </div>
  );
}
