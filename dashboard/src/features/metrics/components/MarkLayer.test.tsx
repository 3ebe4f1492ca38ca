import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import type { Mark, Placed } from "../marks";
import { MarkLayer } from "./MarkLayer";

const killed: Placed = {
  left: 50,
  room: 250,
  mark: { step: 20, generation: 2, kind: "incident", text: "Rank 1 on node-b was killed by SIGKILL." },
};
const resumed: Placed = {
  left: 250,
  room: 50,
  mark: { step: 80, generation: 3, kind: "generation", text: "Generation 3 continues from step 80." },
};

/** `env`: jsdom lays nothing out, so that a tooltip would take its mark to be out of sight, and hide. */
function draw(onOpen: (mark: Mark) => void = () => {}) {
  render(
    <MantineProvider env="test">
      <MarkLayer placed={[killed, resumed]} label="Marks on Loss" onOpen={onOpen} />
    </MantineProvider>,
  );
}

describe("the marks on a chart", () => {
  it("are one tab stop, along which the arrows move, and say on focus what happened", async () => {
    draw();
    await userEvent.tab();
    expect(screen.getByRole("button", { name: /^Gen 2/ })).toHaveFocus();
    expect(await screen.findByRole("tooltip")).toHaveTextContent("Rank 1 on node-b was killed by SIGKILL.");
    await userEvent.keyboard("{ArrowRight}");
    expect(screen.getByRole("button", { name: /^Gen 3/ })).toHaveFocus();
    await userEvent.tab();
    expect(document.body).toHaveFocus();
  });

  it("tell what happened to those who do not see them, and an incident by its shape too", () => {
    draw();
    const incident = screen.getByRole("button", {
      name: "Gen 2 (recovered): Rank 1 on node-b was killed by SIGKILL.",
    });
    expect(incident.querySelector("svg")).not.toBeNull();
    expect(
      screen.getByRole("button", { name: "Gen 3: Generation 3 continues from step 80." }).querySelector("svg"),
    ).toBeNull();
  });

  it("lead to what is known of it", async () => {
    const open = vi.fn();
    draw(open);
    await userEvent.click(screen.getByRole("button", { name: /^Gen 2/ }));
    expect(open).toHaveBeenCalledWith(killed.mark);
  });
});
