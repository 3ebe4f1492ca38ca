/** What a document can begin with: the templates, and the drafts that this browser keeps. Pure. */
import type { KeptDraft } from "@/lib/drafts";
import { dateTime } from "@/lib/format";
import { parse } from "./document";
import { isRecord } from "./schema";

export type PictureName =
  | "layers"
  | "dots"
  | "image"
  | "code"
  | "terminal"
  | "replicas"
  | "shards"
  | "columns"
  | "stages"
  | "squeeze"
  | "server"
  | "curve";

export interface Choice {
  /** As in the address: `template:gpt_stdlib`, `from:JOB`. */
  source: string;
  title: string;
  line: string;
  picture?: PictureName;
}

export interface Template extends Choice {
  name: string;
  text: string;
}

/** The documents at `files`, by path, in the order of their titles, which go by the name of the file. */
export function templatesFrom(
  files: Record<string, string>,
  titles: Record<string, string>,
  pictures: Record<string, PictureName> = {},
): readonly Template[] {
  const order = Object.keys(titles);
  return Object.entries(files)
    .map(([path, text]) => {
      const name = path.split("/").at(-1)!.replace(".yaml", "");
      return {
        name,
        text,
        source: `template:${name}`,
        title: titles[name] ?? name,
        line: descriptionIn(text),
        picture: pictures[name] ?? "layers",
      };
    })
    .sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
}

/** Without reading all of the document. */
function descriptionIn(text: string): string {
  return /^description: (.+)$/m.exec(text)?.[1] ?? "";
}

/** A draft goes by the name that is written in it. */
export function choicesFrom(drafts: readonly KeptDraft[]): Choice[] {
  return drafts.map(({ source, text, at }) => {
    const { value } = parse(text);
    const name = isRecord(value) && typeof value.name === "string" ? value.name : "Unnamed";
    return { source, title: name, line: `Edited ${dateTime(at)}` };
  });
}

/** `from:JOB` as the part of an address that it is. */
export function searchOf(source: string): Record<string, string> {
  const at = source.indexOf(":");
  return { [source.slice(0, at)]: source.slice(at + 1) };
}
