import { Button, Menu, TextInput } from "@mantine/core";
import { MantineProvider } from "@mantine/core";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState, type ReactNode } from "react";
import { describe, expect, it } from "vitest";
import { Dialog } from "./Dialog";

function Page({ children }: { children?: ReactNode }) {
  const [opened, setOpened] = useState(false);
  return (
    <MantineProvider>
      <button>Name</button>
      <button onClick={() => setOpened(true)}>New key</button>
      <Dialog opened={opened} onClose={() => setOpened(false)} title="A key">
        {children ?? <Fields onDone={() => setOpened(false)} />}
      </Dialog>
    </MantineProvider>
  );
}

function Fields({ onDone }: { onDone(): void }) {
  return (
    <>
      <TextInput label="Where" />
      <TextInput label="Name" data-autofocus />
      <Button onClick={onDone}>Done</Button>
    </>
  );
}

const opener = () => screen.getByRole("button", { name: "New key" });
const name = () => screen.getByRole("textbox", { name: "Name" });

/** Presses what has the focus, and lets no timer run afterwards. */
function pressAtOnce(button: HTMLElement): void {
  button.focus();
  act(() => button.click());
}

describe("the focus of a dialog", () => {
  it("is in its first field before a timer has run, so that no key goes to the page behind", () => {
    render(<Page />);
    pressAtOnce(opener());
    expect(name()).toHaveFocus();
  });

  it("stays where the person has gone since", async () => {
    render(<Page />);
    pressAtOnce(opener());
    screen.getByRole("textbox", { name: "Where" }).focus();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(screen.getByRole("textbox", { name: "Where" })).toHaveFocus();
  });

  it("never leaves it by Tab", async () => {
    render(<Page />);
    pressAtOnce(opener());
    const stops = [];
    for (let at = 0; at < 5; at++) {
      await userEvent.tab();
      stops.push(document.activeElement?.textContent || document.activeElement?.getAttribute("aria-label") || "field");
    }
    expect(stops).toEqual(["Done", "Close", "field", "field", "Done"]);
    await userEvent.tab({ shift: true });
    expect(name()).toHaveFocus();
  });

  it("goes from its first stop to its last one by Shift+Tab", async () => {
    render(<Page />);
    pressAtOnce(opener());
    screen.getByRole("button", { name: "Close" }).focus();
    await userEvent.tab({ shift: true });
    expect(screen.getByRole("button", { name: "Done" })).toHaveFocus();
  });

  it.each([
    ["Escape", () => userEvent.keyboard("{Escape}")],
    ["its button", () => userEvent.click(screen.getByRole("button", { name: "Done" }))],
  ])("is given back to what opened it after %s", async (_, close) => {
    render(<Page />);
    await userEvent.click(opener());
    await close();
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(opener()).toHaveFocus();
  });
});

function Late() {
  const [drawn, setDrawn] = useState<"nothing" | "fields" | "secret">("nothing");
  return (
    <>
      <Button onClick={() => setDrawn("fields")}>Load</Button>
      {drawn === "fields" && <TextInput label="Name" data-autofocus onChange={() => setDrawn("secret")} />}
      {drawn === "secret" && <p>Copy it now.</p>}
    </>
  );
}

describe("what a dialog draws later", () => {
  it("has the focus while nobody has gone elsewhere", async () => {
    render(
      <Page>
        <Late />
      </Page>,
    );
    pressAtOnce(opener());
    expect(screen.getByRole("dialog")).toHaveFocus();
    act(() => screen.getByRole("button", { name: "Load" }).click());
    await waitFor(() => expect(name()).toHaveFocus());
  });

  it("does not leave the focus to the page when the field that had it is gone", async () => {
    render(
      <Page>
        <Late />
      </Page>,
    );
    pressAtOnce(opener());
    act(() => screen.getByRole("button", { name: "Load" }).click());
    await userEvent.type(name(), "x");
    expect(screen.getByText("Copy it now.")).toBeVisible();
    await waitFor(() => expect(screen.getByRole("dialog")).toHaveFocus());
  });
});

function FromMenu() {
  const [opened, setOpened] = useState(false);
  return (
    <MantineProvider env="test">
      <Menu>
        <Menu.Target>
          <button>Actions</button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => setOpened(true)}>Rename</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Dialog opened={opened} onClose={() => setOpened(false)} title="A name">
        <Fields onDone={() => setOpened(false)} />
      </Dialog>
    </MantineProvider>
  );
}

it("gives the focus back to the button of the menu that a dialog was opened from", async () => {
  render(<FromMenu />);
  await userEvent.click(screen.getByRole("button", { name: "Actions" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Rename" }));
  expect(name()).toHaveFocus();
  await userEvent.keyboard("{Escape}");
  await waitFor(() => expect(screen.getByRole("button", { name: "Actions" })).toHaveFocus());
});
