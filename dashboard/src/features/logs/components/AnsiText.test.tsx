import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { AnsiText } from "./AnsiText";

const ESC = "\u001b";

function parts(text: string) {
  const { container } = render(<AnsiText text={text} />);
  const found = [...container.querySelectorAll("span")];
  return {
    text: container.textContent,
    colours: found.map((part) => [part.textContent, part.dataset.color, part.dataset.style]),
  };
}

describe("colours of a terminal", () => {
  it("are rendered, and no code is shown", () => {
    const shown = parts(`a ${ESC}[1;31mred${ESC}[0m ${ESC}[92mgreen${ESC}[39m b`);
    expect(shown.text).toBe("a red green b");
    expect(shown.colours).toContainEqual(["red", "ansi-red", "bold"]);
    expect(shown.colours).toContainEqual(["green", "ansi-bright-green", undefined]);
  });

  it("are all that is done: nothing moves, nothing is markup", () => {
    expect(parts(`${ESC}]0;title\u0007${ESC}[2J${ESC}[Aup <b>x</b>`).text).toBe("up <b>x</b>");
    expect(parts("plain <i>").text).toBe("plain <i>");
  });
});

describe("what is searched for", () => {
  const marks = (text: string, q: string, regex = false) => {
    const { container } = render(<AnsiText text={text} search={{ q, regex }} />);
    return {
      text: container.textContent,
      marks: [...container.querySelectorAll("mark")].map((each) => each.textContent),
    };
  };

  it("is marked in a line, wherever it is", () => {
    expect(marks("loss 0.5 Loss", "loss")).toEqual({ text: "loss 0.5 Loss", marks: ["loss", "Loss"] });
    expect(marks("step 12 of 30", "\\d+", true)).toEqual({ text: "step 12 of 30", marks: ["12", "30"] });
  });

  it("is marked over the colours of a line", () => {
    expect(marks(`a ${ESC}[31mred${ESC}[0m bed`, "red b")).toEqual({ text: "a red bed", marks: ["red", " b"] });
  });
});
