import { Button, Group, ScrollArea, Text } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { Guarded } from "@/components/ui/Guarded";
import { PanelStates } from "@/components/ui/Panel";
import { bytes, count } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { LeftFile } from "@/lib/types";
import { contentQuery, fileUrl, MOST_TEXT } from "../api/files";
import { csvRows, MOST_ROWS, prettyJson, previewKind, type PreviewKind } from "../preview";
import classes from "./Files.module.css";

interface Props {
  jobId: string;
  file: LeftFile;
  onClose(): void;
}

/** What is in a file, as far as it can be shown as text or as an image, and its download. */
export function FilePreview({ jobId, file, onClose }: Props) {
  const kind = previewKind(file);
  const refused = useRoleRefusal("member");
  const small = useMediaQuery("(max-width: 600px)");
  return (
    <Dialog onClose={onClose} title={<span className={classes.path}>{file.path}</span>} size="xl" fullScreen={small}>
      {kind ? (
        <Content jobId={jobId} file={file} kind={kind} />
      ) : (
        <Text size="sm">There is no preview of this file. Download it to look at it.</Text>
      )}
      <dl className={classes.facts}>
        <dt>Size</dt>
        <dd>{bytes(file.bytes)}</dd>
        <dt>SHA-256</dt>
        <dd className={classes.hash}>{file.sha256}</dd>
      </dl>
      <Group justify="flex-end">
        <Guarded refused={refused}>
          <Button component={Link} to="/models" search={{ job: jobId, path: file.path } as never} variant="default">
            Register as a model
          </Button>
        </Guarded>
        <Button
          component="a"
          href={fileUrl(jobId, file.path)}
          download={file.name}
          leftSection={<IconDownload size={15} />}
        >
          Download
        </Button>
      </Group>
    </Dialog>
  );
}

function Content({ jobId, file, kind }: { jobId: string; file: LeftFile; kind: PreviewKind }) {
  const query = useQuery(contentQuery(jobId, file));
  return (
    <PanelStates source={query} what="the file" rows={6}>
      {(content) => (
        <>
          {file.bytes === 0 ? (
            <Text size="sm">The file is empty.</Text>
          ) : content instanceof Blob ? (
            <BlobImage blob={content} name={file.path} />
          ) : kind === "table" ? (
            <CsvTable text={content} name={file.path} />
          ) : (
            // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
            <pre className={classes.text} tabIndex={0} aria-label={`Content of ${file.path}`}>
              {kind === "json" ? prettyJson(content) : content}
            </pre>
          )}
          {kind !== "image" && file.bytes > MOST_TEXT && (
            <Text size="xs" c="dimmed" mt={6}>
              {`The first ${bytes(MOST_TEXT)} of ${bytes(file.bytes)}.`}
            </Text>
          )}
        </>
      )}
    </PanelStates>
  );
}

function BlobImage({ blob, name }: { blob: Blob; name: string }) {
  const [url, setUrl] = useState<string>();
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (broken) return <Text size="sm">This is no image that the browser can show.</Text>;
  return url ? <img className={classes.image} src={url} alt={name} onError={() => setBroken(true)} /> : null;
}

function CsvTable({ text, name }: { text: string; name: string }) {
  const [head = [], ...body] = csvRows(text);
  return (
    <>
      <ScrollArea.Autosize mah="60vh" viewportProps={{ tabIndex: 0, "aria-label": `Content of ${name}` }}>
        <table className={classes.csv}>
          <thead>
            <tr>
              {head.map((cell, at) => (
                <th key={at} scope="col">
                  {cell}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {body.map((row, at) => (
              <tr key={at}>
                {row.map((cell, column) => (
                  <td key={column}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollArea.Autosize>
      {body.length >= MOST_ROWS && (
        <Text size="xs" c="dimmed" mt={6}>
          {`The first ${count(MOST_ROWS)} rows.`}
        </Text>
      )}
    </>
  );
}
