import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { SERIES_COLORS, seriesToken } from "@/lib/series";

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

/** The value that a block of the stylesheet gives a custom property, as its red, green and blue. */
function colorOf(block: string, token: string): number[] {
  const hex = new RegExp(`${token}: #([0-9a-f]{6});`).exec(block)?.[1];
  expect(hex, token).toBeDefined();
  return [0, 2, 4].map((at) => parseInt(hex!.slice(at, at + 2), 16));
}

/** Relative luminance: WCAG 2.2. */
function luminance(color: number[]): number {
  const [red, green, blue] = color
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: number[], other: number[]): number {
  const [dark, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (bright! + 0.05) / (dark! + 0.05);
}

describe.each(["light", "dark"])("colours of lines in the %s theme", (theme) => {
  const dark = SHEETS[OWNER]!.indexOf(':root[data-mantine-color-scheme="dark"]');
  const block = theme === "light" ? SHEETS[OWNER]!.slice(0, dark) : SHEETS[OWNER]!.slice(dark);
  const surface = colorOf(block, "--surface");
  const series = Array.from({ length: SERIES_COLORS }, (_, index) => colorOf(block, seriesToken(index)));

  it("stand out from the panel", () => {
    for (const color of series) expect(contrast(color, surface)).toBeGreaterThanOrEqual(3);
  });

  it("are told apart from each other", () => {
    const pairs = series.flatMap((one, index) => series.slice(index + 1).map((other) => [one, other] as const));
    for (const [one, other] of pairs)
      expect(Math.hypot(...one.map((part, at) => part - other[at]!)), `${one} and ${other}`).toBeGreaterThan(60);
  });
});
