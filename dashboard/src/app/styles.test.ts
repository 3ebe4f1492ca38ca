import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

const OWNER = "app/styles.css";
const SHEETS = Object.fromEntries(
  readdirSync("src", { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".css"))
    .map((path) => [path, readFileSync(`src/${path}`, "utf8")]),
);

it("takes the monospaced font, and that `==` stays two characters in it, from one place", () => {
  expect(SHEETS[OWNER]).toMatch(/\.verbatim \{[^}]*font-family: var\(--mono\);\s*font-variant-ligatures: none;/);
  const others = Object.entries(SHEETS).filter(([path, text]) => path !== OWNER && text.includes("var(--mono)"));
  expect(others.map(([path]) => path)).toEqual([]);
  expect(SHEETS["features/logs/components/LogLines.module.css"]).toMatch(
    /\.lines \{\s*composes: verbatim from global;/,
  );
});
