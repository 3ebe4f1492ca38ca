import { fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job } from "@/testing/fixtures";
import { ok } from "@/testing/mockApi";
import { openForm, sent, unfold } from "@/testing/submitForm";

// Labels and texts, not roles: asking for a role computes the style of a few hundred fields, seconds each time.
describe("the fields of a new job", () => {
  it("leaves a yes or no to its default until it is chosen", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    const field = screen.getByRole("combobox", { name: "Reproducible", hidden: true });
    expect(field).toHaveValue("");
    fireEvent.click(field);
    fireEvent.click(await screen.findByText("false"));
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)[0]?.body).toMatchObject({ reproducible: false }));
  });

  it("sends the weights to start with and the steps to trace", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    fireEvent.change(screen.getByLabelText("Initial weights"), { target: { value: "/models/small" } });
    unfold("Profile");
    fireEvent.change(await screen.findByLabelText("First step"), { target: { value: "20" } });
    const ranks = screen.getByLabelText("Ranks");
    fireEvent.change(ranks, { target: { value: "0, 1" } });
    fireEvent.blur(ranks);
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    expect(sent(seen)[0]!.body).toMatchObject({
      initial_weights: "/models/small",
      profile: { first_step: 20, ranks: [0, 1] },
    });
  });

  it("sends a command as its words, typed as in a shell", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    fireEvent.click(screen.getByLabelText("Script"));
    const command = await screen.findByLabelText("Command");
    fireEvent.change(command, { target: { value: "accelerate launch train.py --betas 0.9,0.95" } });
    fireEvent.blur(command);
    fireEvent.change(screen.getByLabelText("Path"), { target: { value: "" } });
    expect(command).toHaveAccessibleDescription(/As on a command line\./);
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    const words = ["accelerate", "launch", "train.py", "--betas", "0.9,0.95"];
    expect(sent(seen)[0]!.body).toMatchObject({ script: { command: words } });
  });

  it("sends the steps and the names of gradients to record", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    unfold("Gradients");
    fireEvent.change(await screen.findByLabelText("Every"), { target: { value: "50" } });
    const names = screen.getByLabelText("Names");
    fireEvent.change(names, { target: { value: "*.weight, head.*" } });
    fireEvent.blur(names);
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    expect(sent(seen)[0]!.body).toMatchObject({ gradients: { every: 50, names: ["*.weight", "head.*"] } });
  });

  it("marks a trace that cannot begin at its step", async () => {
    const { submit } = await openForm();
    unfold("Profile");
    fireEvent.change(await screen.findByLabelText("First step"), { target: { value: "1" } });
    await waitFor(() => expect(screen.getByLabelText("First step")).toHaveAccessibleDescription(/2/));
    expect(submit()).toBeDisabled();
  });

  it("keeps a field that is typed in, on the way from one valid number to another", async () => {
    await openForm();
    unfold("Communication");
    const ratio = await screen.findByLabelText("Ratio");
    await userEvent.type(ratio, "1e-2");
    expect(ratio).toHaveValue("1e-2");
    expect(screen.getByLabelText("Ratio")).toBe(ratio);
    await userEvent.clear(ratio);
    await userEvent.type(ratio, "-1");
    await waitFor(() => expect(ratio).toHaveAccessibleDescription(/greater than 0/));
    await userEvent.clear(ratio);
    await waitFor(() => expect(ratio).not.toHaveAccessibleDescription(/greater than 0/));
    expect(screen.getByText("Communication").closest("details")).toHaveProperty("open", true);
  });

  it("says which fields change nothing with what is chosen", async () => {
    await openForm();
    unfold("Communication");
    const described = (name: string, text: RegExp | string) =>
      waitFor(() => expect(screen.getByLabelText(name)).toHaveAccessibleDescription(text));
    await described("Ratio", "Only with compression top_k");
    fireEvent.click(screen.getByLabelText("Compression", { selector: "input" }));
    fireEvent.click(await screen.findByText("top_k"));
    await described("Ratio", /share of the elements/);
    await described("Rank", "Only with compression power_sgd");
  });

  it("marks a field that the schema refuses and cannot be submitted", async () => {
    const { submit } = await openForm();
    fireEvent.change(screen.getByLabelText("Name"), { target: { value: "No Good" } });
    await waitFor(() => expect(screen.getByLabelText("Name")).toHaveAccessibleDescription(/Invalid value "No Good"/));
    expect(submit()).toBeDisabled();
  });
});
