import { Button } from "@mantine/core";
import { useRef, useState, type DragEvent } from "react";
import { ErrorText } from "@/components/ui/ErrorText";
import { bytes, count, plural } from "@/lib/format";
import { isRecord } from "@/lib/spec/schema";
import type { SendFolder, SentFolder } from "../api/code";
import { originOf, sectionOf, type Code } from "../code";
import { chosenFolder, droppedFolder, type Folder } from "../folder";
import { CodePicker } from "./CodePicker";
import classes from "./CodeDrop.module.css";

interface Props {
  /** `environment.code` of the document. */
  value: unknown;
  send: SendFolder;
  /** Undefined: the job has no code of its own. */
  onChange(code: Partial<Code> | undefined): void;
}

const MOST_NAMED = 6;

/** A folder that is dropped here or chosen, or the code of an earlier job, becomes the job's code. */
export function CodeDrop({ value, send, onChange }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [isOver, setIsOver] = useState(false);
  const [isChoosing, setIsChoosing] = useState(false);
  const take = (choose: () => Promise<Folder>) => send.mutate({ choose, onSent: onChange });
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setIsOver(false);
    const found = droppedFolder(event.dataTransfer.items);
    take(async () => (await found) ?? refuse());
  };
  return (
    <div
      className={classes.drop}
      data-over={isOver || undefined}
      role="group"
      aria-label="Code"
      onDragOver={(event) => {
        event.preventDefault();
        setIsOver(true);
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={drop}
    >
      <input
        ref={input}
        type="file"
        hidden
        aria-label="Folder with code"
        {...{ webkitdirectory: "" }}
        onChange={(event) => {
          const list = [...(event.currentTarget.files ?? [])];
          event.currentTarget.value = "";
          if (list.length > 0) take(() => Promise.resolve(chosenFolder(list)));
        }}
      />
      <p className={classes.text} role="status">
        {send.isPending ? "Sending the folder…" : told(value, send.data)}
      </p>
      {send.error && (
        <p className={classes.error} role="alert">
          <ErrorText error={send.error} alone />
        </p>
      )}
      <div className={classes.actions}>
        <Button size="compact-sm" variant="default" loading={send.isPending} onClick={() => input.current?.click()}>
          {isRecord(value) ? "Choose another folder" : "Choose a folder"}
        </Button>
        <Button size="compact-sm" variant="default" disabled={send.isPending} onClick={() => setIsChoosing(true)}>
          Code of an earlier job
        </Button>
        {isRecord(value) && (
          <Button size="compact-sm" variant="default" onClick={() => onChange(undefined)}>
            Remove the code
          </Button>
        )}
      </div>
      {isChoosing && (
        <CodePicker
          onClose={() => setIsChoosing(false)}
          onChoose={({ code }) => {
            send.reset();
            onChange(sectionOf(code));
            setIsChoosing(false);
          }}
        />
      )}
    </div>
  );
}

function refuse(): never {
  throw new Error("What was dropped is no folder. Drop the folder that has the job's code.");
}

function told(value: unknown, last?: { name: string; sent: SentFolder }): string {
  if (!isRecord(value))
    return "Drop the folder with the job's code here: it becomes the working directory of its ranks.";
  if (last && last.sent.digest === value.bundle) {
    const { files, bytes: size, left_out: left, left_out_count: all } = last.sent;
    const more = all > MOST_NAMED ? ` and ${count(all - MOST_NAMED)} more` : "";
    const without = left.length > 0 ? ` Left out: ${left.slice(0, MOST_NAMED).join(", ")}${more}.` : "";
    return `${last.name}: ${plural(files, "file")}, ${bytes(size)}.${without}`;
  }
  const folder = typeof value.folder === "string" ? value.folder : "A folder";
  const origin = originOf(value);
  return `${folder} as it was sent before (${String(value.bundle).slice(0, 12)})${origin ? `, ${origin}` : ""}.`;
}
