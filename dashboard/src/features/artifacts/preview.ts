/** What of a file can be shown in the page, without the browser taking it for a page of its own. */
import type { LeftFile } from "@/lib/types";
import { MOST_IMAGE } from "./api/files";

export type PreviewKind = "text" | "json" | "table" | "image";

export const MOST_ROWS = 200;
const MOST_COLUMNS = 50;

/** How a file is shown; null: not at all. */
export function previewKind({ media_type: type, bytes }: Pick<LeftFile, "media_type" | "bytes">): PreviewKind | null {
  if (type === "image/png" || type === "image/jpeg") return bytes <= MOST_IMAGE ? "image" : null;
  if (type === "application/json") return "json";
  if (type.startsWith("text/csv")) return "table";
  return type.startsWith("text/plain") ? "text" : null;
}

/** Texts, signs between values, and all other values. */
const JSON_TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const INDENT = "  ";

/** JSON with a line for each value, each spelled as it is there; what is no JSON, or only its beginning, as it is. */
export function prettyJson(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let shown = "";
  let depth = 0;
  let before = "";
  for (const token of text.match(JSON_TOKENS)!) {
    const closes = token === "}" || token === "]";
    const begins = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (closes ? !begins : begins || before === ",") shown += `\n${INDENT.repeat(depth)}`;
    if (token === "{" || token === "[") depth += 1;
    shown += token === ":" ? ": " : token;
    before = token;
  }
  return shown;
}

/** The first rows of a CSV (RFC 4180): commas, quotes, doubled quotes and line breaks within them. */
export function csvRows(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    if (row.length < MOST_COLUMNS) row.push(cell);
    if (row.length > 1 || cell !== "") rows.push(row);
    [row, cell] = [[], ""];
  };
  for (let at = 0; at < text.length && rows.length <= MOST_ROWS; at++) {
    const sign = text[at]!;
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at]!;
      else quoted = false;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === ",") {
      if (row.length < MOST_COLUMNS) row.push(cell);
      cell = "";
    } else if (sign === "\n") endRow();
    else if (sign !== "\r") cell += sign;
  }
  if (rows.length <= MOST_ROWS && (cell !== "" || row.length > 0)) endRow();
  return rows;
}
