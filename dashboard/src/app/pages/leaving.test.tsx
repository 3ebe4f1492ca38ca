import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { job } from "@/testing/fixtures";
import { ok } from "@/testing/mockApi";
import { openForm, sent } from "@/testing/submitForm";

// Its script never comes.
vi.mock("./JobPage", () => new Promise(() => {}));

describe("a page whose successor is on its way", () => {
  it("says so, and submits nothing more", async () => {
    const { seen, router, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    const main = screen.getByRole("main");
    await waitFor(() => expect(main).not.toHaveAttribute("aria-busy"));
    await userEvent.click(submit());
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/job1"));
    expect(main).toHaveAttribute("aria-busy", "true");
    expect(submit()).toBeDisabled();
    await userEvent.click(submit());
    expect(sent(seen)).toHaveLength(1);
  });
});
