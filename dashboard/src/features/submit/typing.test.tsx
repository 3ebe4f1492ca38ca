import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import userEvent, { PointerEventsCheckLevel } from "@testing-library/user-event";
import fc from "fast-check";
import type { ReactNode } from "react";
import { expect, it } from "vitest";
import { numberAdvice } from "@/lib/numbers";
import { parse } from "@/lib/spec/document";
import { createQueryClient } from "@/lib/query";
import type { Schema } from "@/lib/spec/schema";
import { useDocument } from "@/lib/spec/useDocument";
import { specSchema } from "@/testing/specSchema";
import { useSendFolder } from "./api/code";
import { SpecForm } from "./components/SpecForm";
import { templateNamed } from "./templates";

const client = createQueryClient();
const { optimizer } = specSchema.properties!;
const WHATEVER: Schema = { type: "object" };
const SCHEMA: Schema = { ...specSchema, properties: { optimizer: optimizer!, model: WHATEVER, data: WHATEVER } };

/** The part of the form that has the learning rate, over a whole document, whose text is shown. */
function Form() {
  const { text, value, local, set } = useDocument(templateNamed("gpt_stdlib").text, specSchema);
  const sendFolder = useSendFolder();
  return (
    <MantineProvider>
      <SpecForm
        schema={SCHEMA}
        value={value}
        issues={local}
        sendFolder={sendFolder}
        without={["name"]}
        onChange={set}
      />
      <pre data-testid="text">{text}</pre>
    </MantineProvider>
  );
}

function Client({ children }: { children: ReactNode }) {
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}

/** The field of the learning rate, into which one spelling is written after the other: drawing the form anew for each takes most of the time. */
function openField(): HTMLElement {
  render(<Form />, { wrapper: Client });
  return screen.getByLabelText("Learning rate (lr)");
}

/** A decimal as somebody may write it, and the number that it is by JavaScript's own reading of its plain form. */
const decimals = fc
  .record({
    sign: fc.constantFrom("", "+", "-"),
    whole: fc.stringMatching(/^(0|[1-9][0-9]{0,5}|00[1-9]|[1-9]_[0-9]{3})?$/),
    fraction: fc.option(fc.stringMatching(/^[0-9]{0,6}$/), { nil: undefined }),
    exponent: fc.option(
      fc.record({ e: fc.constantFrom("e", "E"), sign: fc.constantFrom("", "+", "-"), of: fc.nat(30) }),
      {
        nil: undefined,
      },
    ),
  })
  .filter(({ whole, fraction }) => whole !== "" || (fraction ?? "") !== "")
  .map(({ sign, whole, fraction, exponent }) => {
    const tail = exponent ? `${exponent.e}${exponent.sign}${exponent.of}` : "";
    return `${sign}${whole}${fraction === undefined ? "" : `.${fraction}`}${tail}`;
  });

const RUNS = 25;

it.each(["typed", "pasted"])(
  "a decimal in any spelling, %s, stays as it is and means the same in the YAML",
  async (how) => {
    const user = userEvent.setup({ pointerEventsCheck: PointerEventsCheckLevel.Never });
    const field = openField();
    await fc.assert(
      fc.asyncProperty(decimals, async (spelling) => {
        await user.clear(field);
        if (how === "typed") await user.type(field, spelling);
        else {
          await user.click(field);
          await user.paste(spelling);
        }
        fireEvent.blur(field);
        expect(field).toHaveValue(spelling);
        const document = parse(screen.getByTestId("text").textContent).value;
        expect(document).toHaveProperty("optimizer.lr", Number(spelling.replace("_", "")));
      }),
      { numRuns: RUNS },
    );
  },
);

const letters = fc.stringMatching(/^[a-df-z]{1,6}$/);

it("what is no number is refused with a sentence, and never becomes one", () => {
  const field = openField();
  fc.assert(
    fc.property(decimals, letters, (spelling, word) => {
      fireEvent.change(field, { target: { value: spelling + word } });
      fireEvent.blur(field);
      expect(field).toHaveValue(spelling + word);
      const advice = numberAdvice(spelling + word); // of `1k`, say
      expect(field).toHaveAccessibleDescription(`Must be a number, not "${spelling}${word}"${advice}`);
    }),
    { numRuns: RUNS },
  );
});
