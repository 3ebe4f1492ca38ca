import { fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job, me } from "@/testing/fixtures";
import { ok } from "@/testing/mockApi";
import { openForm } from "@/testing/submitForm";

const name = () => screen.getByLabelText("Name");
const rename = (to: string) => fireEvent.change(name(), { target: { value: to } });
const isKept = () => Object.keys(localStorage).some((key) => key.startsWith(`paceline-draft:${me.user_id}:job:`));

describe("a document that was edited and not submitted", () => {
  it("is asked about before it is left, and stays on the page", async () => {
    const { router } = await openForm();
    rename("my-run");
    fireEvent.click(screen.getByText("Cluster"));
    fireEvent.click(await screen.findByText("Keep editing"));
    await waitFor(() => expect(screen.queryByText("Keep editing")).toBeNull());
    expect(router.state.location.pathname).toBe("/jobs/new");
    expect(name()).toHaveValue("my-run");
  });

  it("is there again after a reload or a crash, and can be begun anew", async () => {
    const { unmount } = await openForm();
    rename("my-run");
    unmount();
    await openForm();
    expect(name()).toHaveValue("my-run");
    expect(screen.getByText(/This is your draft of/)).toBeVisible();
    fireEvent.click(screen.getByText("Start over"));
    fireEvent.click(await screen.findByText("Discard draft"));
    await waitFor(() => expect(name()).toHaveValue("gpt-stdlib"));
    expect(screen.queryByText(/This is your draft of/)).toBeNull();
    expect(isKept()).toBe(false);
  });

  it("is kept when another page is chosen, or thrown away", async () => {
    const { router, unmount } = await openForm();
    rename("my-run");
    fireEvent.click(screen.getByText("Cluster"));
    fireEvent.click(await screen.findByText("Keep draft and leave"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/cluster"));
    expect(isKept()).toBe(true);
    unmount();
    const again = await openForm();
    expect(name()).toHaveValue("my-run");
    fireEvent.click(screen.getByText("Cluster"));
    fireEvent.click(await screen.findByText("Discard changes"));
    await waitFor(() => expect(again.router.state.location.pathname).toBe("/cluster"));
    expect(isKept()).toBe(false);
  });

  it("is asked about before another template takes its place, which then offers it", async () => {
    const { router } = await openForm();
    rename("my-run");
    await userEvent.click(screen.getByLabelText("Template", { selector: "input" }));
    await userEvent.click(await screen.findByText("Perceptron on MNIST"));
    fireEvent.click(await screen.findByText("Keep draft and leave"));
    await waitFor(() => expect(router.state.location.search).toEqual({ template: "mnist_mlp" }));
    await waitFor(() => expect(name()).toHaveValue("mnist-mlp"));
    await userEvent.click(screen.getByLabelText("Template", { selector: "input" }));
    await userEvent.click(await screen.findByText("my-run"));
    await waitFor(() => expect(name()).toHaveValue("my-run"));
  });

  it("is kept once more on leaving, where another tab had put its own draft in its place", async () => {
    const { router } = await openForm();
    rename("my-run");
    const [key] = Object.keys(localStorage).filter((each) => each.startsWith("paceline-draft:"));
    localStorage.setItem(key!, JSON.stringify({ text: "name: other", at: Date.now() }));
    fireEvent.click(screen.getByText("Cluster"));
    fireEvent.click(await screen.findByText("Keep draft and leave"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/cluster"));
    expect(localStorage.getItem(key!)).toContain("name: my-run");
  });

  it("is no draft any more once it is submitted", async () => {
    const { router, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    rename("my-run");
    expect(isKept()).toBe(true);
    await userEvent.click(submit());
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/job1"));
    expect(isKept()).toBe(false);
  });
});
