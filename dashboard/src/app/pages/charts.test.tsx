import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it } from "vitest";
import { curve, metrics } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const chartOf = (title: string) => screen.findByRole("region", { name: `${title} chart` });

/** A job that reports its loss, and a metric and a rate of its own. */
function reporting() {
  mockApi({
    "GET /api/v1/metrics/jobs/job1": () =>
      ok(
        metrics({
          names: ["loss", "recall", "images_per_second"],
          curves: [
            curve(),
            curve({ name: "recall", unit: "", last: [0.1, 0.2] }),
            curve({ name: "images_per_second", unit: "", bucket_steps: 10, steps: [9], last: [1], mean: [505] }),
          ],
        }),
      ),
  });
}

beforeEach(() => {
  reporting();
});

describe("the charts of a job", () => {
  it("are there for a user's own metrics, a rate as its mean", async () => {
    renderApp("/jobs/job1");
    expect(await chartOf("recall")).toHaveTextContent("0.2 at step 2. Min 0.1 at step 1, max 0.2 at step 2.");
    expect(await chartOf("images_per_second")).toHaveTextContent("505 at step 9.");
  });

  it("count what the URL says, of what the job's metrics allow", async () => {
    const { router } = renderApp("/jobs/job1?axis=time");
    await chartOf("Loss");
    const axis = screen.getByRole("combobox", { name: "X axis" });
    expect(axis).toHaveValue("Time");
    await userEvent.click(axis);
    const offered = (await screen.findAllByRole("option", { hidden: true })).map(({ textContent }) => textContent);
    expect(offered.filter((name) => ["Step", "Time", "Samples", "Tokens", "Epoch"].includes(name))).toEqual([
      "Step",
      "Time",
    ]);
    await userEvent.click(screen.getByRole("option", { name: "Step", hidden: true }));
    await waitFor(() => expect(router.state.location.search).toEqual({}));
  });

  it("fill the screen, and come back", async () => {
    renderApp("/jobs/job1");
    const user = userEvent.setup();
    await user.click(within(await chartOf("Loss")).getByRole("button", { name: "Actions for Loss" }));
    await user.click(await screen.findByRole("menuitem", { name: "Full screen", hidden: true }));
    const dialog = await screen.findByRole("dialog", { name: "Loss" });
    expect(within(dialog).getByText(/^4 nats at step 2/)).toBeVisible();
    await user.click(within(dialog).getByRole("button", { name: "Leave full screen" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("show a range of values that is typed, and all of them again", async () => {
    renderApp("/jobs/job1");
    const user = userEvent.setup();
    const actions = within(await chartOf("Loss")).getByRole("button", { name: "Actions for Loss" });
    await user.click(actions);
    await user.click(await screen.findByRole("menuitem", { name: "Set value range…", hidden: true }));
    const dialog = await screen.findByRole("dialog", { name: "Value range of Loss" });
    await user.type(within(dialog).getByRole("textbox", { name: "From" }), "5");
    await user.type(within(dialog).getByRole("textbox", { name: "To" }), "1e-2");
    expect(within(dialog).getByRole("button", { name: "Show these values" })).toBeDisabled();
    await user.clear(within(dialog).getByRole("textbox", { name: "From" }));
    await user.type(within(dialog).getByRole("textbox", { name: "From" }), "1e-3");
    await user.click(within(dialog).getByRole("button", { name: "Show these values" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    await user.click(actions);
    await user.click(await screen.findByRole("menuitem", { name: "Show all values", hidden: true }));
    await user.click(actions);
    expect(screen.queryByRole("menuitem", { name: "Show all values" })).toBeNull();
  });

  it("keep their steps while what is typed means no range, and say why", async () => {
    const { router } = renderApp("/jobs/job1?from=0&to=200");
    await chartOf("Loss");
    const user = userEvent.setup();
    const [from, to] = ["From step", "To step"].map((name) => screen.getByRole("textbox", { name }));
    const type = async (field: HTMLElement, text: string) => {
      await user.clear(field);
      await user.type(field, text);
    };
    await type(from!, "abc{Enter}");
    expect(from).toHaveAccessibleDescription("From step must be a whole number of at least 0.");
    await type(from!, "100");
    await user.tab();
    await waitFor(() => expect(router.state.location.search).toEqual({ from: 100, to: 200 }));
    await type(to!, "50{Enter}");
    expect(to).toHaveAccessibleDescription("From step must be below To step.");
    expect(router.state.location.search).toEqual({ from: 100, to: 200 });
    await type(from!, "10{Enter}");
    await waitFor(() => expect(router.state.location.search).toEqual({ from: 10, to: 50 }));
    expect(from).not.toHaveAccessibleDescription();
    await user.click(screen.getByRole("button", { name: "Whole run" }));
    await waitFor(() => expect(from).toHaveValue(""));
    await type(from!, "1{Enter}");
    await waitFor(() => expect(router.state.location.search).toEqual({ from: 1, to: 9 }));
  });

  it("leave out what has no place on a log scale, and say so", async () => {
    const own = (last: number[]) =>
      curve({ name: "balance", unit: "", minimum: last, maximum: last, mean: last, last });
    mockApi({ "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ names: ["balance"], curves: [own([-1, 0.5])] })) });
    renderApp("/jobs/job1");
    const user = userEvent.setup();
    const chart = await chartOf("balance");
    const actions = within(chart).getByRole("button", { name: "Actions for balance" });
    const openRange = async () => {
      await user.click(actions);
      await user.click(await screen.findByRole("menuitem", { name: "Set value range…", hidden: true }));
      return within(await screen.findByRole("dialog", { name: "Value range of balance" }));
    };
    const dialog = await openRange();
    await user.type(dialog.getByRole("textbox", { name: "From" }), "-1");
    await user.type(dialog.getByRole("textbox", { name: "To" }), "1");
    await user.click(dialog.getByRole("button", { name: "Show these values" }));
    expect(chart).not.toHaveTextContent("not shown");
    await user.click(screen.getByRole("switch", { name: "Log scale" }));
    await waitFor(() => expect(chart).toHaveTextContent("1 value at or below 0 is not shown."));
    const onLog = await openRange();
    const from = onLog.getByRole("textbox", { name: "From" });
    expect(from).toHaveValue("");
    await user.type(from, "-1");
    await user.type(onLog.getByRole("textbox", { name: "To" }), "1");
    expect(from).toHaveAccessibleDescription("On a log scale, enter a number above 0.");
    expect(onLog.getByRole("button", { name: "Show these values" })).toBeDisabled();
    await user.clear(from);
    await user.type(from, "0.1");
    await user.click(onLog.getByRole("button", { name: "Show these values" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });
});
