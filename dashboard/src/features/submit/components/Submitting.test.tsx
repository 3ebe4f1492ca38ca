import { EditorView } from "@codemirror/view";
import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job, me } from "@/testing/fixtures";
import { ok, problem } from "@/testing/mockApi";
import { openForm, sent } from "@/testing/submitForm";

const refusing = (pointer: string, message: string) => ({
  "POST /api/v1/training/plan": () =>
    problem(422, "invalid_spec", "not valid", [{ pointer, code: "less_than", message, hint: null }]),
});

// Labels and texts, not roles: asking for a role computes the style of a few hundred fields, seconds each time.
describe("what stands in the way of a submission", () => {
  it("is said beside the button, with the way to the field", async () => {
    const { submit } = await openForm(refusing("/optimizer/adamw/betas/1", "Must be less than 1, not 1.5"));
    const betas = screen.getByLabelText("Betas (2 numbers)");
    await waitFor(() => expect(betas).toHaveAccessibleDescription(/Item 2: Must be less than 1, not 1.5/));
    expect(submit()).toBeDisabled();
    expect(submit()).toHaveAccessibleDescription(/Fix the problem first/);
    fireEvent.click(screen.getByText("Go to the field"));
    expect(betas).toHaveFocus();
    betas.blur();
    fireEvent.click(within(screen.getByLabelText("Problems")).getByText("/optimizer/betas/1"));
    expect(betas).toHaveFocus();
  });

  it("is shown in the text where the form has no field for it", async () => {
    const { router } = await openForm(refusing("/model/layerz", "is not a field"));
    fireEvent.click(await screen.findByText("Go to the field"));
    await waitFor(() => expect(router.state.location.search).toEqual({ view: "yaml" }));
    expect(await screen.findByLabelText("Job spec as YAML")).toBeVisible();
  });

  it("is a text that the form cannot show: the switch stays at YAML, and says where to fix it", async () => {
    const { router } = await openForm();
    fireEvent.click(screen.getByLabelText("YAML"));
    const editor = EditorView.findFromDOM(await screen.findByLabelText("Job spec as YAML"))!;
    const write = (insert: string) =>
      act(() => editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert } }));
    write("name: first\nbad: [1,");
    fireEvent.click(screen.getByLabelText("Form"));
    expect(
      await screen.findByText(/^Fix the YAML first: line 2, column 6: the bracket \[ .* not closed/),
    ).toBeVisible();
    expect(screen.getByLabelText("YAML")).toBeChecked();
    expect(router.state.location.search).toEqual({ view: "yaml" });
    write("name: first");
    expect(screen.queryByText(/Fix the YAML first/)).not.toBeInTheDocument();
    fireEvent.click(screen.getByLabelText("Form"));
    expect(await screen.findByLabelText("Name")).toHaveValue("first");
  });

  it("is the role of a viewer", async () => {
    const { submit } = await openForm({ "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }) });
    await waitFor(() => expect(submit()).toHaveAccessibleDescription(/Your role is viewer/));
    expect(submit()).toHaveAttribute("aria-disabled", "true");
  });

  it("is not that the plan is on its way: a click waits for it", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    fireEvent.change(screen.getByLabelText("Name"), { target: { value: "at-once" } });
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    expect(sent(seen)[0]!.body).toMatchObject({ name: "at-once" });
    expect(sent(seen)[0]!.url.searchParams.get("plan_hash")).toBe("hash-1");
  });
});
