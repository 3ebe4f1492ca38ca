import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { beforeEach, expect, it } from "vitest";
import { createQueryClient } from "@/lib/query";
import { specSchemaQuery } from "@/lib/spec/query";
import { mockApi } from "@/testing/mockApi";
import { specSchema } from "@/testing/specSchema";
import { LabelInput } from "./LabelInput";

function Form() {
  const [pairs, setPairs] = useState(["seed=1"]);
  const [problem, setProblem] = useState<string | null>(null);
  return (
    <>
      <LabelInput label="Labels" value={pairs} problem={problem} onChange={setPairs} onProblem={setProblem} />
      <output>{pairs.join(" | ")}</output>
    </>
  );
}

const RULE = /^Invalid name "bad key!": 1 to 63 lower-case letters/;
const field = () => screen.getByRole("combobox", { name: "Labels" });
const pairs = () => screen.getByRole("status").textContent;

beforeEach(() => {
  mockApi();
  const client = createQueryClient();
  client.setQueryData(specSchemaQuery.queryKey, specSchema);
  render(
    <QueryClientProvider client={client}>
      <MantineProvider>
        <Form />
      </MantineProvider>
    </QueryClientProvider>,
  );
});

it("keeps a text that is no label when the field is left, and says why, until it is one", async () => {
  await userEvent.type(field(), "novalue");
  await userEvent.tab();
  expect(field()).toHaveValue("novalue");
  expect(field()).toHaveAccessibleDescription(/Invalid label "novalue": write it as key=value/);
  await userEvent.type(field(), "=x");
  expect(field()).not.toHaveAccessibleDescription(/Invalid/);
  await userEvent.keyboard("{Enter}");
  expect(field()).toHaveValue("");
  expect(pairs()).toBe("seed=1 | novalue=x");
});

it.each(["{Enter}", ","])("keeps a label with a bad key at %s, however often, and lets it be deleted", async (key) => {
  await userEvent.type(field(), `bad key!=x${key}`);
  await userEvent.keyboard("{Enter}");
  expect(field()).toHaveValue("bad key!=x");
  expect(field()).toHaveAccessibleDescription(RULE);
  expect(pairs()).toBe("seed=1");
  await userEvent.clear(field());
  expect(field()).toHaveValue("");
  expect(field()).not.toHaveAccessibleDescription(/Invalid/);
});

it("takes the labels of a pasted list and keeps the rest of it", async () => {
  await userEvent.click(field());
  await userEvent.paste("team=cv, bad key!=x, seed=1");
  expect(pairs()).toBe("seed=1 | team=cv");
  expect(field()).toHaveValue("bad key!=x");
  expect(field()).toHaveAccessibleDescription(RULE);
});

it("refuses a second value of a key, typed or pasted with the first, and names it", async () => {
  await userEvent.type(field(), "seed=2{Enter}");
  expect(field()).toHaveValue("seed=2");
  expect(field()).toHaveAccessibleDescription(/seed is there already, as seed=1/);
  expect(pairs()).toBe("seed=1");
  await userEvent.clear(field());
  await userEvent.click(field());
  await userEvent.paste("a=1,a=2");
  await userEvent.keyboard("{Enter}");
  expect(pairs()).toBe("seed=1 | a=1");
  expect(field()).toHaveAccessibleDescription(/a is there already, as a=1/);
});
