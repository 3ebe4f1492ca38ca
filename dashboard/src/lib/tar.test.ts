import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { tarOf } from "./tar";

async function unpacked(files: Record<string, string>): Promise<Record<string, string>> {
  const folder = mkdtempSync(join(tmpdir(), "tar-"));
  const archive = join(folder, "archive.tar");
  const blob = tarOf(Object.entries(files).map(([path, text]) => ({ path, content: new Blob([text]) })));
  writeFileSync(archive, new Uint8Array(await blob.arrayBuffer()));
  execFileSync("tar", ["xf", archive, "-C", folder]);
  return Object.fromEntries(Object.keys(files).map((path) => [path, readFileSync(join(folder, path), "utf8")]));
}

describe("a tar archive", () => {
  it("is unpacked by tar, whatever its files are called and however large they are", async () => {
    const files = {
      "train.py": "print(1)\n",
      "empty.txt": "",
      "exactly/one/block.txt": "x".repeat(512),
      "größe/ünï cødé.py": "ä".repeat(1000),
      [`${"deep/".repeat(40)}file.py`]: "far down",
      [`${"n".repeat(93)}.py`]: "a name whose record has two digits more than its rest",
    };
    expect(await unpacked(files)).toEqual(files);
  });

  it("is the same for the same files", async () => {
    const archive = () => tarOf([{ path: "a", content: new Blob(["1"]) }]).arrayBuffer();
    expect(new Uint8Array(await archive())).toEqual(new Uint8Array(await archive()));
  });
});
