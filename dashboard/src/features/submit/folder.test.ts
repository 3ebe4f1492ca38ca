import { describe, expect, it } from "vitest";
import { chosenFolder, droppedFolder, folderOf } from "./folder";

const text = (path: string, content = "x") => ({ path, content: new Blob([content]) });
const paths = (files: readonly { path: string }[]) => files.map(({ path }) => path);

/** What a browser gives for a dropped folder: entries in pieces of two. */
function entry(name: string, tree: unknown): unknown {
  if (typeof tree === "string")
    return { name, isDirectory: false, file: (found: (file: Blob) => void) => found(new Blob([tree])) };
  const all = Object.entries(tree as Record<string, unknown>).map(([child, inner]) => entry(child, inner));
  return {
    name,
    isDirectory: true,
    createReader: () => ({ readEntries: (found: (some: unknown[]) => void) => found(all.splice(0, 2)) }),
  };
}

const dropped = (...entries: unknown[]) =>
  entries.map((each) => ({ webkitGetAsEntry: () => each })) as unknown as DataTransferItemList;

describe("a folder", () => {
  it("is without what is never code", () => {
    const { files } = folderOf("mine", [
      text("train.py"),
      text(".git/HEAD"),
      text("a/__pycache__/b.pyc"),
      text(".venv/pyvenv.cfg"),
      text(".venv/bin/python"),
      text("a/b.py"),
      text(".gitignore"),
    ]);
    expect(paths(files)).toEqual([".gitignore", "a/b.py", "train.py"]);
  });

  it("that was chosen is relative to itself", () => {
    const file = (path: string) => Object.assign(new File(["x"], "f"), { webkitRelativePath: path });
    const found = chosenFolder([file("mine/train.py"), file("mine/src/model.py")]);
    expect([found.name, ...paths(found.files)]).toEqual(["mine", "src/model.py", "train.py"]);
  });

  it("that was dropped is read to its end, however many pieces it comes in", async () => {
    const tree = { "a.py": "1", "b.py": "2", "c.py": "3", inner: { "d.py": "4", "e.py": "5", "f.py": "6" } };
    const withMore = { ...tree, ".git": { HEAD: "x" }, env: { "pyvenv.cfg": "x", bin: { python: "x" } } };
    const found = await droppedFolder(dropped(entry("note.txt", "x"), entry("mine", withMore)));
    expect(found?.name).toBe("mine");
    expect(paths(found!.files)).toEqual(["a.py", "b.py", "c.py", "inner/d.py", "inner/e.py", "inner/f.py"]);
    expect(await droppedFolder(dropped(entry("note.txt", "x")))).toBeNull();
  });

  it("that is too large is refused with its largest files, and one without files too", () => {
    const large = { path: "weights.bin", content: { size: 200 * 2 ** 20 } as Blob };
    expect(() => folderOf("mine", [text("a.py"), large])).toThrow(/limit is 100.*weights\.bin \(200.*--workdir/);
    expect(() => folderOf("mine", [text(".git/HEAD")])).toThrow("The folder mine has no files to send.");
  });
});
