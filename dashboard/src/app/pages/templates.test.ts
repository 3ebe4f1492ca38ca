import { expect, it } from "vitest";
import { TEMPLATES as EXPERIMENTS } from "@/features/experiments/templates";
import { TEMPLATES as JOBS } from "@/features/submit/templates";

it.each([...JOBS, ...EXPERIMENTS].map((template) => [template.name, template] as const))(
  "the template %s has a title and a line about it",
  (name, { title, line }) => {
    expect(title).not.toBe(name);
    expect(line).toMatch(/^[A-Z].{10,}$/);
  },
);
