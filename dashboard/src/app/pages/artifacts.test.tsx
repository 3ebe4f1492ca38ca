import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { folderPage, leftFile } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const FILES = "/api/v1/training/jobs/job1/files";

function leaving(routes: Routes = {}) {
  return mockApi({
    [`GET ${FILES}`]: ({ url }) =>
      ok(
        url.searchParams.get("prefix") === "rank0"
          ? folderPage({ prefix: "rank0", items: [leftFile(), leftFile({ path: "rank0/a.json", name: "a.json" })] })
          : folderPage({
              folders: [{ path: "rank0", name: "rank0", files: 2, bytes: 2048, changed_at: leftFile().changed_at }],
            }),
      ),
    ...routes,
  });
}

describe("the artifacts of a job", () => {
  it("says how to leave files where there are none", async () => {
    mockApi({ [`GET ${FILES}`]: () => ok(folderPage({ files: 0 })) });
    renderApp("/jobs/job1?tab=artifacts");
    expect(await screen.findByText("$PACELINE_ARTIFACTS")).toBeVisible();
    expect(screen.queryByRole("link", { name: /Download all/ })).toBeNull();
  });

  it("goes into a folder and back", async () => {
    const seen = leaving();
    renderApp("/jobs/job1?tab=artifacts");
    await userEvent.click(await screen.findByRole("button", { name: "rank0" }));
    const table = await screen.findByRole("table", { name: "Files" });
    expect(await within(table).findByRole("button", { name: "scores.csv" })).toBeVisible();
    expect(screen.getByRole("link", { name: "Download scores.csv" })).toHaveAttribute(
      "href",
      `${FILES}/content?path=rank0%2Fscores.csv`,
    );
    expect(screen.getByRole("link", { name: /Download folder/ })).toHaveAttribute(
      "href",
      `${FILES}/archive?prefix=rank0`,
    );
    await userEvent.click(screen.getByRole("button", { name: "Artifacts" }));
    expect(await screen.findByRole("button", { name: "rank0" })).toBeVisible();
    expect(seen.filter(({ path }) => path === FILES).length).toBeGreaterThanOrEqual(2);
  });

  it("tells which files are not kept, and why", async () => {
    mockApi({ [`GET ${FILES}`]: () => ok(folderPage({ not_kept: ["rank0/bomb is not kept: too large"] })) });
    renderApp("/jobs/job1?tab=artifacts");
    expect(await screen.findByRole("region", { name: "Files that are not kept" })).toHaveTextContent("rank0/bomb");
  });

  it("says of an empty file that it is", async () => {
    leaving({ [`GET ${FILES}`]: () => ok(folderPage({ items: [leftFile({ bytes: 0 })] })) });
    renderApp("/jobs/job1?tab=artifacts");
    await userEvent.click(await screen.findByRole("button", { name: "scores.csv" }));
    expect(await within(await screen.findByRole("dialog")).findByText("The file is empty.")).toBeVisible();
  });

  it("shows the beginning of a JSON as text, whatever is in it", async () => {
    const seen = leaving({ [`GET ${FILES}/content`]: () => ok({ html: "<img src=x onerror=alert(1)>" }) });
    renderApp("/jobs/job1?tab=artifacts&folder=rank0");
    await userEvent.click(await screen.findByRole("button", { name: "a.json" }));
    expect(await screen.findByText(/<img src=x onerror/)).toBeVisible();
    const asked = seen.find(({ path }) => path === `${FILES}/content`)!;
    expect(asked.headers.get("Range")).toBe("bytes=0-262143");
    expect(screen.getByRole("dialog").querySelector("img")).toBeNull();
  });

  it("asks before it deletes a file, and says why it could not", async () => {
    const refusal = problem(409, "model_in_use", "rank0/scores.csv is gpt:1 in the registry of models");
    const seen = leaving({ [`DELETE ${FILES}`]: () => refusal });
    renderApp("/jobs/job1?tab=artifacts&folder=rank0");
    await userEvent.click(await screen.findByRole("button", { name: "Delete scores.csv" }));
    await userEvent.click(screen.getByRole("button", { name: "Delete file" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("is gpt:1 in the registry of models");
    expect(seen.find(({ method }) => method === "DELETE")!.url.searchParams.get("path")).toBe("rank0/scores.csv");
  });
});
