import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { ok, problem } from "@/testing/mockApi";
import { openForm, sent, unfold } from "@/testing/submitForm";

const BUNDLES = "POST /api/v1/training/bundles";
const digest = "ab".repeat(32);
const bundle = {
  digest,
  bytes: 2048,
  unpacked_bytes: 10_240,
  files: 3,
  state: "ready",
  next_chunk: null,
  created_by: "ada",
  created_at: "2026-11-26T10:00:00Z",
  left_out: ["data.bin", "runs/"],
  left_out_count: 2,
};
const file = (path: string) => Object.assign(new File(["x"], "f"), { webkitRelativePath: path });

beforeEach(() => localStorage.clear());

async function choose(...paths: string[]) {
  const input = await screen.findByLabelText("Folder with code");
  fireEvent.change(input, { target: { files: paths.map(file) } });
}

describe("a folder with code", () => {
  it("is sent, told, and submitted as the code of the job", async () => {
    const { seen, submit } = await openForm({ [BUNDLES]: () => ok(bundle, 201) });
    unfold("Environment");
    expect(await screen.findByText(/Drop the folder with the job's code here/)).toBeInTheDocument();
    await choose("mine/train.py", "mine/.git/HEAD");
    expect(await screen.findByText(/^mine: 3 files, .+\. Left out: data.bin, runs\/\.$/)).toBeInTheDocument();
    const request = seen.find(({ method, path }) => `${method} ${path}` === BUNDLES)!;
    expect(request.url.searchParams.get("folder")).toBe("mine");
    expect(request.headers.get("Content-Type")).toBe("application/x-tar");
    await waitFor(() => expect(submit()).toBeEnabled());
    fireEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    expect(sent(seen)[0]!.body).toMatchObject({ environment: { code: { bundle: digest, folder: "mine" } } });
  });

  it("is taken away again", async () => {
    await openForm({ [BUNDLES]: () => ok(bundle, 201) });
    unfold("Environment");
    await choose("mine/train.py");
    fireEvent.click(await screen.findByText("Remove the code"));
    expect(await screen.findByText(/Drop the folder with the job's code here/)).toBeInTheDocument();
  });

  it("that the coordinator refuses, or that has no files, says why", async () => {
    await openForm({ [BUNDLES]: () => problem(422, "invalid_request", "the folder mine cannot be sent: it is odd") });
    unfold("Environment");
    await choose("mine/train.py");
    expect(await screen.findByText(/The folder mine cannot be sent: it is odd/)).toBeInTheDocument();
    await choose("other/.git/HEAD");
    expect(await screen.findByText(/The folder other has no files to send/)).toBeInTheDocument();
  });

  it("must be a folder where something is dropped", async () => {
    await openForm();
    unfold("Environment");
    const items = [{ webkitGetAsEntry: () => ({ isDirectory: false, name: "note.txt" }) }];
    fireEvent.drop(await screen.findByLabelText("Code"), { dataTransfer: { items } });
    expect(await screen.findByText(/What was dropped is no folder/)).toBeInTheDocument();
  });
});
