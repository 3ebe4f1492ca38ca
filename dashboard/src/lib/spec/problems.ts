/** Why a text is no document, in the coordinator's words where it has some. Pure. */
import { visit, type Document, type Node, type YAMLError } from "yaml";
import { findMistake } from "./syntax";

export interface TextProblem {
  from: number;
  to: number;
  message: string;
}

/** Each key that is there twice, and the first mistake in the syntax: what follows it is seldom true. */
export function problemsIn(text: string, document: Document): TextProblem[] {
  const twice = document.errors.filter(({ code }) => code === "DUPLICATE_KEY");
  const wrong = document.errors.find(({ code }) => code !== "DUPLICATE_KEY");
  if (wrong) return [...twice.map((each) => keyTwice(text, document, each)), syntaxProblem(text, wrong)];
  return twice.length ? twice.map((each) => keyTwice(text, document, each)) : aliasProblems(text, document);
}

function syntaxProblem(text: string, error: YAMLError): TextProblem {
  const mistake = findMistake(text);
  if (mistake) {
    const lines = text.split("\n");
    const before = lines.slice(0, mistake.line - 1).join("\n").length + (mistake.line > 1 ? 1 : 0);
    const from = before + mistake.column - 1;
    const to = before + lines[mistake.line - 1]!.trimEnd().length;
    return {
      from,
      to: Math.max(to, from + 1),
      message: `line ${mistake.line}, column ${mistake.column}: ${mistake.message}`,
    };
  }
  if (error.code === "NON_STRING_KEY") {
    const message = `a key on line ${lineOf(text, error.pos[0])} is a list or a mapping; keys are words`;
    return { from: error.pos[0], to: error.pos[1], message };
  }
  const [place] = error.linePos ?? [];
  const own = error.message.split("\n")[0]!.replace(/ at line \d+, column \d+:?$/, "");
  const where = place ? `line ${place.line}, column ${place.col}: ` : "";
  return { from: error.pos[0], to: error.pos[1], message: `${where}${own}` };
}

function keyTwice(text: string, document: Document, error: YAMLError): TextProblem {
  const [from] = error.pos;
  let first = from;
  let name = "";
  visit(document, {
    Map(_, { items }) {
      const keys = items.map(({ key }) => key as Node | null);
      const second = keys.find((key) => key?.range?.[0] === from);
      if (!second) return undefined;
      name = String(second);
      first = keys.find((key) => String(key) === name)?.range?.[0] ?? from;
      return visit.BREAK;
    },
  });
  const message = `the key '${name}' on line ${lineOf(text, from)} is there already, on line ${lineOf(text, first)}; keep one of them`;
  return { from, to: from + Math.max(1, name.length), message };
}

/** Aliases that stand for nothing, for too much or for what they are within: such a document has no value. */
function aliasProblems(text: string, document: Document): TextProblem[] {
  let alias: { name: string; from: number } | null = null as { name: string; from: number } | null;
  visit(document, {
    Alias(_, node) {
      alias ??= { name: node.source, from: node.range?.[0] ?? 0 };
      return undefined;
    },
  });
  if (alias === null) return [];
  try {
    JSON.stringify(document.toJS());
    return [];
  } catch {
    const { name, from } = alias;
    const message = `line ${lineOf(text, from)} has the alias *${name}; anchors and aliases are not read here: write the value out, or put a text that begins so in quotes`;
    return [{ from, to: from + name.length + 1, message }];
  }
}

function lineOf(text: string, at: number): number {
  return text.slice(0, at).split("\n").length;
}
