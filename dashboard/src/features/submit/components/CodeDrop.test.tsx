import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { page } from "@/testing/fixtures";
import { ok, problem, type Seen } from "@/testing/mockApi";
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

  it("is waited for by the job, also where its section is folded while it is sent", async () => {
    let finish = () => {};
    const upload = new Promise<ReturnType<typeof ok>>((resolve) => {
      finish = () => resolve(ok(bundle, 201));
    });
    const { seen, submit } = await openForm({ [BUNDLES]: () => upload });
    await waitFor(() => expect(submit()).toBeEnabled());
    unfold("Environment");
    await choose("mine/train.py");
    expect(await screen.findByText("The folder with the code is still being sent.")).toBeInTheDocument();
    expect(submit()).toBeDisabled();
    unfold("Environment");
    await waitFor(() => expect(screen.queryByText("Sending the folder…")).toBeNull());
    finish();
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

describe("the code of an earlier job", () => {
  const jobCode = (name: string, folder: string | null) => ({
    code: { bundle: digest, folder, commit: "0123456789abcdef", branch: "main", uncommitted: ["a.py"] },
    bytes: 2048,
    unpacked_bytes: 10_240,
    files: 3,
    job_id: name,
    job_name: name,
    created_by: "ada",
    created_at: new Date(Date.now() - 7_300_000).toISOString(),
  });
  const LIST = "GET /api/v1/training/bundles";
  const older = { ...page([jobCode("first-try", "other")]), next_cursor: null };
  const list = ({ url }: Seen) => {
    if (url.searchParams.get("q") === "nothing") return ok(page([]));
    if (url.searchParams.get("cursor") === "c1") return ok(older);
    return ok({ items: [jobCode("newest", "mine")], next_cursor: "c1" });
  };

  async function openList(answer: (request: Seen) => ReturnType<typeof ok>) {
    const form = await openForm({ [LIST]: answer });
    unfold("Environment");
    fireEvent.click(await screen.findByText("Code of an earlier job"));
    return { ...form, dialog: within(await screen.findByRole("dialog")) };
  }

  it("is chosen from a list, told, and submitted as it was", async () => {
    const { dialog, seen, submit } = await openList(list);
    const choice = await dialog.findByRole("button", { name: /newest/ });
    expect(choice).toHaveTextContent("2 h ago by ada");
    expect(choice).toHaveTextContent("mine · commit 0123456789ab of main, 1 file differed · 3 files · 2.0 KiB");
    fireEvent.click(choice);
    expect(await screen.findByText(/^mine as it was sent before .+ commit 0123456789ab of main/)).toBeInTheDocument();
    await waitFor(() => expect(submit()).toBeEnabled());
    fireEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    const code = { bundle: digest, folder: "mine", commit: "0123456789abcdef", branch: "main", uncommitted: ["a.py"] };
    expect(sent(seen)[0]!.body).toMatchObject({ environment: { code } });
  });

  it("is searched by the job's name, page by page", async () => {
    const { dialog, seen } = await openList(list);
    fireEvent.click(await dialog.findByText("Show older code"));
    expect(await dialog.findByRole("button", { name: /first-try/ })).toBeInTheDocument();
    fireEvent.change(dialog.getByLabelText("Search"), { target: { value: "nothing" } });
    expect(await dialog.findByText("No job with code matches “nothing”")).toBeInTheDocument();
    expect(
      seen
        .filter(({ path }) => path.endsWith("/bundles"))
        .at(-1)!
        .url.searchParams.get("q"),
    ).toBe("nothing");
  });

  it("is missing where no job has any", async () => {
    const { dialog } = await openList(() => ok(page([])));
    expect(await dialog.findByText("No job was submitted with code yet")).toBeInTheDocument();
  });

  it("says why it cannot be listed", async () => {
    const { dialog } = await openList(() => problem(503, "unavailable", "the database is away"));
    expect(await dialog.findByText(/the database is away/i)).toBeInTheDocument();
  });
});
