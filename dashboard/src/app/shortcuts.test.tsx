import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it } from "vitest";
import { mockApi, ok } from "@/testing/mockApi";
import { page } from "@/testing/fixtures";
import { renderApp } from "@/testing/renderApp";

const palette = () => screen.queryByRole("combobox", { name: "Command" });

beforeEach(() => {
  mockApi({
    "GET /api/v1/training/jobs": () => ok(page([])),
    "GET /api/v1/training/experiments": () => ok(page([])),
  });
});

describe("the keys of every page", () => {
  it("are named where people look: a button for the palette and one for the list of shortcuts", async () => {
    const user = userEvent.setup();
    renderApp("/jobs");
    const button = await screen.findByRole("button", { name: "Go to…" });
    expect(button).toHaveTextContent("Ctrl K");
    await user.click(button);
    expect(palette()).toHaveFocus();
    await user.keyboard("{Escape}");
    await user.click(screen.getByRole("button", { name: "Keyboard shortcuts" }));
    expect(await screen.findByRole("dialog", { name: "Keyboard shortcuts" })).toHaveTextContent("Search on this page");
  });

  it("are listed by ?, and / goes to the page's search field", async () => {
    const user = userEvent.setup();
    renderApp("/jobs");
    const search = await screen.findByRole("textbox", { name: "Search jobs" });
    await user.keyboard("/");
    expect(search).toHaveFocus();
    await user.keyboard("a/?");
    expect(search).toHaveValue("a/?");
    search.blur();
    await user.keyboard("{Shift>}?{/Shift}");
    const list = await screen.findByRole("dialog", { name: "Keyboard shortcuts" });
    await waitFor(() => expect(list).toBeVisible()); // it fades in
    await user.keyboard("/");
    expect(search).not.toHaveFocus();
  });

  it("open the palette by / where a page has nothing to search", async () => {
    const user = userEvent.setup();
    renderApp("/nowhere");
    await screen.findByRole("heading", { name: "Page not found" });
    await user.keyboard("/");
    await waitFor(() => expect(palette()).toHaveFocus());
  });

  it("open the palette from an editor of text", async () => {
    const user = userEvent.setup();
    renderApp("/nowhere");
    const editor = (await screen.findByRole("main")).appendChild(document.createElement("div"));
    Object.assign(editor, { contentEditable: "true", tabIndex: 0 });
    Object.defineProperty(editor, "isContentEditable", { value: true });
    editor.focus();
    await user.keyboard("{Control>}k{/Control}");
    expect(palette()).toHaveFocus();
  });
});

describe("the tabs of a page", () => {
  it("are walked through by arrows, Home and End", async () => {
    const user = userEvent.setup();
    mockApi({});
    renderApp("/jobs/job1?tab=spec");
    (await screen.findByRole("tab", { name: "Spec" })).focus();
    await user.keyboard("{Home}");
    expect(screen.getByRole("tab", { name: "Curves" })).toHaveFocus();
    await user.keyboard("{End}");
    expect(screen.getByRole("tab", { name: "Spec" })).toHaveFocus();
  });
});
