import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { onlyRulesOf, usedClasses } from "./mantineStyles";

const MANTINE = join(import.meta.dirname, "node_modules/@mantine/core");
const css = readFileSync(join(MANTINE, "styles.css"), "utf8");
const rootOf = (component: string) =>
  readFileSync(join(MANTINE, `styles/${component}.css`), "utf8").match(/m_[0-9a-f]+/)![0];

describe("the part of Mantine's style sheet that is served", () => {
  const kept = onlyRulesOf(usedClasses(), css);

  it("has the components that are used, and those that they are made of", () => {
    for (const component of ["Button", "UnstyledButton", "Modal", "ModalBase", "Menu", "Popover", "Combobox", "Pill"])
      expect(kept).toContain(rootOf(component));
  });

  it("has no component that nothing uses", () => {
    for (const component of ["Rating", "Stepper", "ColorPicker"]) expect(kept).not.toContain(rootOf(component));
    expect(kept.length).toBeLessThan(css.length / 2);
  });

  it("keeps what is no component's", () => {
    for (const rule of ["--mantine-color-body", ".mantine-active:active", "@keyframes"]) {
      expect(css).toContain(rule);
      expect(kept).toContain(rule);
    }
  });
});
