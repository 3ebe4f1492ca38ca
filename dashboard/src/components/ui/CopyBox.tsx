import { Button, CopyButton } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";
import classes from "./CopyBox.module.css";

export function CopyAction({ value, label = "Copy" }: { value: string; label?: string }) {
  return (
    <CopyButton value={value}>
      {({ copied, copy }) => (
        <Button
          size="compact-xs"
          variant="default"
          leftSection={copied ? <IconCheck size={13} /> : <IconCopy size={13} />}
          onClick={copy}
        >
          <span aria-live="polite">{copied ? "Copied" : label}</span>
        </Button>
      )}
    </CopyButton>
  );
}

/** A command to run somewhere else. */
export function CopyBox({ value }: { value: string }) {
  return (
    <div className={classes.box}>
      <code className={classes.code}>{value}</code>
      <CopyAction value={value} />
    </div>
  );
}
