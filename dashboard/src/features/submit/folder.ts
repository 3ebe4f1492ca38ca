/** Folders that people drop on a page or choose: their files, without what is never code. */
import { bytes, count } from "@/lib/format";
import type { TarFile } from "@/lib/tar";

export interface Folder {
  name: string;
  files: TarFile[];
}

/** As the coordinator has it, which also knows the rules in .gitignore: what would only be sent to be left out. */
const NEVER = new Set([".git", ".hg", ".svn", "__pycache__", ".paceline", ".DS_Store"]);
const ENVIRONMENT_MARK = "pyvenv.cfg";
const MOST_FILES = 20_000;
const MOST_BYTES = 100 * 2 ** 20;
const MOST_NAMED = 3;
const WAY_OUT = "send it with paceline submit --workdir, which leaves out what .gitignore and .pacelineignore say";

/** A folder as `<input type="file" webkitdirectory>` gives it. */
export function chosenFolder(list: Iterable<File>): Folder {
  const all = [...list].map((file) => ({ path: file.webkitRelativePath || file.name, content: file }));
  const name = all[0]?.path.split("/")[0] ?? "";
  return folderOf(
    name,
    all.map(({ path, content }) => ({ path: path.slice(name.length + 1), content })),
  );
}

/** The first folder among what was dropped; null: there is none. */
export async function droppedFolder(items: DataTransferItemList): Promise<Folder | null> {
  // Asked before anything is awaited: afterwards the browser has forgotten what was dropped.
  const entries = [...items].map((item) => item.webkitGetAsEntry());
  const folder = entries.find((entry) => entry?.isDirectory);
  return folder ? folderOf(folder.name, await filesIn(folder as FileSystemDirectoryEntry, "")) : null;
}

async function filesIn(folder: FileSystemDirectoryEntry, path: string): Promise<TarFile[]> {
  const entries = (await entriesIn(folder)).filter(({ name }) => !NEVER.has(name));
  if (path && entries.some(({ name }) => name === ENVIRONMENT_MARK)) return [];
  const found = await Promise.all(
    entries.map(async (entry) =>
      entry.isDirectory
        ? filesIn(entry as FileSystemDirectoryEntry, `${path}${entry.name}/`)
        : [{ path: `${path}${entry.name}`, content: await fileOf(entry as FileSystemFileEntry) }],
    ),
  );
  return found.flat();
}

/** A browser gives the entries of a folder in pieces, until one is empty. */
async function entriesIn(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return all;
    all.push(...some);
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

/** Throws an Error that names the limit and the way out. */
export function folderOf(name: string, all: readonly TarFile[]): Folder {
  const environments = all
    .filter(({ path }) => path.endsWith(`/${ENVIRONMENT_MARK}`))
    .map(({ path }) => path.slice(0, -ENVIRONMENT_MARK.length));
  const files = all.filter(
    ({ path }) =>
      !path.split("/").some((part) => NEVER.has(part)) && !environments.some((folder) => path.startsWith(folder)),
  );
  if (files.length === 0) throw new Error(`The folder ${name} has no files to send.`);
  if (files.length > MOST_FILES)
    throw new Error(
      `The folder ${name} has ${count(files.length)} files; the limit is ${count(MOST_FILES)}. Instead, ${WAY_OUT}.`,
    );
  const size = files.reduce((total, { content }) => total + content.size, 0);
  if (size > MOST_BYTES)
    throw new Error(
      `The folder ${name} has ${bytes(size)}; the limit is ${bytes(MOST_BYTES)}. The largest: ${largest(files)}. Instead, ${WAY_OUT}.`,
    );
  return { name, files: files.toSorted((one, two) => (one.path < two.path ? -1 : 1)) };
}

function largest(files: readonly TarFile[]): string {
  const named = files.toSorted((one, two) => two.content.size - one.content.size).slice(0, MOST_NAMED);
  return named.map(({ path, content }) => `${path} (${bytes(content.size)})`).join(", ");
}
