import { Linter } from "eslint";
import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { expect, it } from "vitest";
import house from "./layers.js";

const CONFIG = [{ files: ["**/*.{ts,tsx}"], plugins: { house }, rules: { "house/layers": "error" } }];

function complaintsOf(file, code) {
  const messages = new Linter({ cwd: resolve(".") }).verify(code, CONFIG, resolve("src", file));
  return messages.map(({ message }) => message);
}

it.each(readdirSync("src/features"))("holds %s, as every folder of features, to its layer", (feature) => {
  const file = `features/${feature}/components/Panel.tsx`;
  const other = feature === "jobs" ? "logs" : "jobs";
  const across = [`features/${feature} may not import from features/${other}: app puts features together`];
  expect(complaintsOf(file, `import { x } from "@/features/${other}/api/x";`)).toEqual(across);
  expect(complaintsOf(file, `import { x } from "../../${other}/api/x";`)).toEqual(across);
  expect(complaintsOf(file, `import classes from "../../${other}/components/X.module.css";`)).toEqual(across);
  expect(complaintsOf(file, `export { x } from "../../${other}/api/x";`)).toEqual(across);
  expect(complaintsOf(file, `const x = import("../../${other}/api/x");`)).toEqual(across);
  expect(complaintsOf(file, `import { x } from "@/features/${feature}/api/x"; import "../api/x";`)).toEqual([]);
});

it.each(["@/app/search", "../../../app/search"])("lets no feature import %s", (source) => {
  expect(complaintsOf("features/jobs/components/Panel.tsx", `import "${source}";`)).toHaveLength(1);
});

it.each(["@/features/jobs/api/jobs", "../features/jobs/api/jobs", "../app/search"])(
  "lets lib not import %s",
  (source) => {
    expect(complaintsOf("lib/format.ts", `import "${source}";`)).toHaveLength(1);
  },
);

it("lets app put features together, features use what is shared, and tests alone use testing", () => {
  expect(complaintsOf("app/pages/JobPage.tsx", 'import "@/features/jobs/api/jobs"; import "react";')).toEqual([]);
  expect(complaintsOf("features/jobs/api/jobs.ts", 'import "@/lib/client"; import "../../../lib/keys";')).toEqual([]);
  expect(complaintsOf("features/jobs/jobs.test.tsx", 'import "@/testing/fixtures";')).toEqual([]);
  expect(complaintsOf("features/jobs/api/jobs.ts", 'import "@/testing/fixtures";')).toHaveLength(1);
});
