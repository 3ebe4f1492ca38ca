/** What jobs are called and filed under: a text that does not fit is told at its field, before anything is sent. */
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const JOB = "/api/v1/training/jobs/job1";

async function editDialog() {
  renderApp("/jobs/job1");
  await userEvent.click(await screen.findByRole("button", { name: "Edit name, labels, priority and notes" }));
  return screen.findByRole("dialog");
}

async function labelDialog() {
  renderApp("/jobs?pick=job1");
  await userEvent.click(await screen.findByRole("button", { name: "Change" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Label or move…" }));
  return screen.findByRole("dialog");
}

it.each([
  { of: "several jobs", open: labelDialog, field: "Add labels", button: "Apply" },
  { of: "one job", open: editDialog, field: "Labels", button: "Save" },
])("a label of $of that is none stays in its field, and is not sent until it is one", async (dialog) => {
  const seen = mockApi({ [`PATCH ${JOB}`]: () => ok(job()) });
  const { getByRole } = within(await dialog.open());
  const labels = getByRole("combobox", { name: dialog.field });
  const send = getByRole("button", { name: dialog.button });
  await userEvent.type(labels, "colour=red{Enter}");
  expect(send).toBeEnabled();
  await userEvent.type(labels, "novalue");
  await userEvent.click(send);
  expect(labels).toHaveValue("novalue");
  expect(labels).toHaveAccessibleDescription(/Invalid label "novalue": write it as key=value, for example team=nlp/);
  expect(send).toBeDisabled();
  await userEvent.type(labels, "=x");
  await userEvent.click(send);
  await waitFor(() =>
    expect(seen.filter(({ method }) => method === "PATCH").map(({ body }) => body)).toEqual([
      { labels: { colour: "red", novalue: "x" } },
    ]),
  );
});

it.each(["Name", "Project"])(
  "a %s that does not fit is told while it is typed, in the words of a new job's form",
  async (field) => {
    const seen = mockApi({ [`PATCH ${JOB}`]: () => ok(job()) });
    const { getByRole } = within(await editDialog());
    const input = getByRole("textbox", { name: field });
    await userEvent.clear(input);
    await userEvent.type(input, "Bad Name");
    const rule = "1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit";
    expect(input).toHaveAccessibleDescription(`Invalid value "Bad Name": ${rule}`);
    expect(getByRole("button", { name: "Save" })).toBeDisabled();
    await userEvent.keyboard("{Enter}");
    expect(seen.filter(({ method }) => method === "PATCH")).toEqual([]);
    await userEvent.clear(input);
    await userEvent.type(input, " good-name ");
    expect(input).not.toHaveAccessibleDescription();
    await userEvent.click(getByRole("button", { name: "Save" }));
    const sent = { [field.toLowerCase()]: "good-name" };
    await waitFor(() => expect(seen.find(({ method }) => method === "PATCH")?.body).toEqual(sent));
  },
);
