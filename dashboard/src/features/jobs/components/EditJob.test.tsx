import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { createQueryClient } from "@/lib/query";
import type { Job } from "@/lib/types";
import { job } from "@/testing/fixtures";
import { mockApi, ok, problem, type Handler, type Seen } from "@/testing/mockApi";
import { EditJob } from "./EditJob";

const JOB = "/api/v1/training/jobs/job1";

/** Opens the form of `shown`. Answers with how the page comes to show a newer state of the job. */
async function open(shown: Job): Promise<(newer: Job) => void> {
  const client = createQueryClient();
  const page = (one: Job) => (
    <QueryClientProvider client={client}>
      <MantineProvider>
        <EditJob job={one} />
      </MantineProvider>
    </QueryClientProvider>
  );
  const { rerender } = render(page(shown));
  fireEvent.click(screen.getByRole("button", { name: "Edit name, labels, priority and notes" }));
  await screen.findByRole("button", { name: "Save" });
  return (newer) => rerender(page(newer));
}

const save = () => screen.getByRole("button", { name: "Save" });
const notes = () => screen.getByRole("textbox", { name: "Notes" });

function write(text: string): void {
  fireEvent.change(notes(), { target: { value: text } });
}

function press(name: string): void {
  fireEvent.click(screen.getByRole("button", { name }));
}

function sent(seen: Seen[]): [unknown, string | null][] {
  return seen.filter(({ method }) => method === "PATCH").map(({ body, headers }) => [body, headers.get("If-Match")]);
}

it("saves what was changed in it, and leaves what others have changed since it was opened", async () => {
  const seen = mockApi({ [`PATCH ${JOB}`]: () => ok(job()) });
  const show = await open(job({ priority: 50, labels: { a: "1" }, notes: "" }));
  show(job({ priority: 90, labels: { a: "1", b: "2" }, notes: "" }));
  expect(save()).toBeDisabled();
  write("mine");
  fireEvent.click(save());
  await waitFor(() => expect(sent(seen).map(([body]) => body)).toEqual([{ notes: "mine" }]));
});

describe("notes that two people edit at once", () => {
  it("are shown as somebody else has left them, and replaced only where that is asked for", async () => {
    const seen = mockApi({ [`PATCH ${JOB}`]: () => ok(job()) });
    const show = await open(job({ notes: "x", revision: 7 }));
    write("x and mine");
    show(job({ notes: "x and theirs", revision: 8 }));
    expect(screen.getByRole("alert")).toHaveTextContent("Somebody changed the notes meanwhile.x and theirs");
    expect(notes()).toHaveValue("x and mine");
    expect(save()).toBeDisabled();
    press("Replace theirs");
    expect(screen.queryByRole("alert")).toBeNull();
    fireEvent.click(save());
    await waitFor(() => expect(sent(seen)).toEqual([[{ notes: "x and mine" }, '"8"']]));
  });

  it("can be left as somebody else has made them", async () => {
    const seen = mockApi({ [`PATCH ${JOB}`]: () => ok(job()) });
    const show = await open(job({ notes: "x" }));
    write("mine");
    show(job({ notes: "theirs" }));
    press("Discard mine");
    expect(notes()).toHaveValue("theirs");
    expect(save()).toBeDisabled();
    show(job({ notes: "theirs, once more" }));
    fireEvent.change(screen.getByRole("textbox", { name: "Name" }), { target: { value: "other" } });
    fireEvent.click(save());
    await waitFor(() => expect(sent(seen)).toEqual([[{ name: "other" }, null]]));
  });

  const stale: Handler = ({ headers }) =>
    headers.get("If-Match") === '"7"' ? problem(412, "precondition_failed", "the job is at revision 8") : ok(job());

  it("are sent again where something else of the job has changed", async () => {
    const seen = mockApi({ [`PATCH ${JOB}`]: stale, [`GET ${JOB}`]: () => ok(job({ notes: "x", revision: 8 })) });
    await open(job({ notes: "x", revision: 7 }));
    write("mine");
    fireEvent.click(save());
    await waitFor(() => expect(sent(seen).map(([, revision]) => revision)).toEqual(['"7"', '"8"']));
  });

  it("are not sent again where the page does not show yet what somebody else has written", async () => {
    const seen = mockApi({ [`PATCH ${JOB}`]: stale, [`GET ${JOB}`]: () => ok(job({ notes: "theirs", revision: 8 })) });
    await open(job({ notes: "x", revision: 7 }));
    write("mine");
    fireEvent.click(save());
    expect(await screen.findByRole("alert")).toHaveTextContent("the job is at revision 8");
    expect(sent(seen)).toHaveLength(1);
    expect(notes()).toHaveValue("mine");
  });
});
