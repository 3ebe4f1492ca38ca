/** Values in a YAML text: where they end, and usual mistakes in them. `findMistake` of `syntax.ts` reads the lines around them. Pure. */

const LONGEST_SHOWN = 40;
/** What ends a word without quotes: outside of brackets, and within them. */
export const WORD_END = /:(?=[ \t\n]|$)|[ \t]#|\n|$/g;
const FLOW_WORD_END = /:(?=[ \t\n,[\]{}]|$)|[ \t]#|[,[\]{}\n]|$/g;
export const BLANKS = /[ \t]*/y;
export const PROPERTY = /(?:[&][\w-]+|![^ \t\n,[\]{}]*)(?:[ \t]+|(?=\n|$))/y;
const FLOW_BLANKS = /(?:[ \t\n]|(?:(?<=[ \t\n])|(?<=^))#[^\n]*)*/y;
const AFTER_QUOTE = /[ \t]*(?:[:,\]}\n]|$)|[ \t]+#/y;
const LIKE_A_FIELD = /(?:[A-Za-z_][\w.-]*:|-)(?=[ \n]|$)/y;
const ESCAPES = '0abt\tnvfre "/\\N_LPxuU\n';
export const CLOSING: Readonly<Record<string, string>> = { "[": "]", "{": "}" };

/** A mistake at an index of the text. */
export class FoundError extends Error {
  readonly at: number;

  constructor(at: number, message: string) {
    super(message);
    this.at = at;
  }
}

/** Here is something that is seldom written; only a parser knows whether it is right. */
export class UnfamiliarError extends Error {}

/** Line and column, from 1, of an index into a text. */
export function placeOf(text: string, at: number): { line: number; column: number } {
  return { line: text.slice(0, at).split("\n").length, column: columnOf(text, at) };
}

export function columnOf(text: string, at: number): number {
  return at === 0 ? 1 : at - text.lastIndexOf("\n", at - 1);
}

/** Where the match of a sticky pattern at `at` ends; -1 where there is none. */
export function endOf(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** Where the next match of a global pattern from `at` on begins; the end of the text where there is none. */
export function nextOf(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.exec(text)?.index ?? text.length;
}

/** The index after a word without quotes, which may have blanks in it. */
export function word(text: string, at: number, ends = WORD_END): number {
  const first = text.charAt(at);
  const following = text.charAt(at + 1);
  const whole = () => inQuotes(shown(text.slice(at, nextOf(ends, text, at + 1))));
  if ("@`%".includes(first))
    throw new FoundError(at, `a value cannot begin with ${first}; put it in quotes: ${whole()}`);
  if ("*&".includes(first) && !/[\w-]/.test(following)) {
    throw new FoundError(
      at,
      `${first} has a meaning of its own at the beginning of a value; put it in quotes: ${whole()}`,
    );
  }
  if (first === "?" && " \n".includes(following)) throw new UnfamiliarError();
  return nextOf(ends, text, at);
}

export function lineFrom(text: string, at: number): string {
  return text.slice(at).split("\n", 1)[0]!.trimEnd();
}

export function shown(text: string): string {
  const told = text.trim();
  return told.length <= LONGEST_SHOWN ? told : `${told.slice(0, LONGEST_SHOWN)}...`;
}

export function inQuotes(text: string): string {
  return /["\\]/.test(text) ? `'${text.replaceAll("'", "''")}'` : `"${text}"`;
}

/** The index after a text in quotes. */
export function quoted(text: string, start: number): number {
  const quote = text[start];
  for (let at = start + 1; at < text.length; at++) {
    const following = text.charAt(at + 1);
    if (quote === '"' && text[at] === "\\") {
      if (!ESCAPES.includes(following)) {
        const wayOut = "write \\\\ for a backslash, or put the text in single quotes";
        throw new FoundError(at, `\\${following} means nothing in double quotes; ${wayOut}`);
      }
      at++;
    } else if (text[at] === quote) {
      if (quote === '"' || following !== "'") return closed(text, start, at + 1);
      at++;
    }
  }
  throw unclosedQuote(text, start);
}

function unclosedQuote(text: string, start: number): FoundError {
  const sign = text.charAt(start);
  return new FoundError(
    start,
    `the quote ${sign} that opens here is not closed; put another ${sign} at the end of the value`,
  );
}

/** Checks what follows a closing quote, and returns its index. */
function closed(text: string, start: number, end: number): number {
  if (endOf(AFTER_QUOTE, text, end) >= 0) return end;
  if (text.slice(start, end).includes("\n")) throw unclosedQuote(text, start); // it is the opening quote of a later value
  const double = text[start] === "'" ? ", and write '' for an apostrophe within single quotes" : "";
  const after = shown(lineFrom(text, end));
  throw new FoundError(end, `${after} follows the closing quote; put the whole value into the quotes${double}`);
}

/** An open bracket: its index, and what its newest entry has: nothing, a key or an item, the colon after it, or its value too. */
interface Bracket {
  at: number;
  entry: "nothing" | "key" | "colon" | "value";
}

/** What stands in brackets, from `start` to the closing one. `column`: that of the block which they are in. */
export class Brackets {
  private readonly open: Bracket[] = [];
  /** The bracket that was open where a line began as a field of the block does. */
  private suspect: number | null = null;

  constructor(
    private readonly text: string,
    private readonly start: number,
    private readonly column: number,
  ) {}

  /** The index after them. */
  read(): number {
    try {
      for (let at = this.start; at < this.text.length; at = this.blanks(at)) {
        at = this.token(at);
        if (this.open.length === 0) return at;
      }
      throw this.unclosed(this.open.at(-1)!.at);
    } catch (error) {
      throw error instanceof FoundError && this.suspect !== null ? this.unclosed(this.suspect) : error;
    }
  }

  private unclosed(at: number): FoundError {
    const sign = this.text.charAt(at);
    return new FoundError(at, `the bracket ${sign} that opens here is not closed; put ${CLOSING[sign]} at its end`);
  }

  private blanks(at: number): number {
    const end = endOf(FLOW_BLANKS, this.text, at);
    const isNewLine = this.text.slice(at, end).includes("\n");
    if (this.suspect === null && isNewLine && columnOf(this.text, end) - 1 <= this.column) {
      if (endOf(LIKE_A_FIELD, this.text, end) >= 0) this.suspect = this.open.at(-1)!.at;
    }
    return end;
  }

  private token(at: number): number {
    const sign = this.text.charAt(at);
    const newest = this.open.at(-1);
    if ("]}".includes(sign)) return this.close(at);
    if (sign === ",") {
      if (newest!.entry === "nothing") {
        throw new FoundError(at, "nothing stands before this comma; remove it, or put the missing value there");
      }
      newest!.entry = "nothing";
      return at + 1;
    }
    if (sign === ":" && (newest!.entry === "key" || /^(?:[ \t\n]|$)/.test(this.text.charAt(at + 1)))) {
      return this.colon(at);
    }
    const end = endOf(PROPERTY, this.text, at);
    return end >= 0 ? end : this.value(at);
  }

  private close(at: number): number {
    const opened = this.open.pop()!;
    const sign = this.text.charAt(opened.at);
    if (this.text[at] !== CLOSING[sign]) {
      const { line, column } = placeOf(this.text, opened.at);
      const where = `the bracket ${sign} of line ${line}, column ${column}`;
      throw new FoundError(at, `${where} is closed by ${this.text[at]}; write ${CLOSING[sign]}`);
    }
    return at + 1;
  }

  private colon(at: number): number {
    const newest = this.open.at(-1)!;
    if (newest.entry === "colon" || newest.entry === "value") {
      throw new FoundError(
        at,
        "one entry has two colons; put a comma between two entries, or quotes around a value with a colon",
      );
    }
    newest.entry = "colon";
    return at + 1;
  }

  private value(at: number): number {
    const sign = this.text.charAt(at);
    const isWord = !"[{\"'".includes(sign);
    const newest = this.open.at(-1);
    if (newest) {
      if ((newest.entry === "key" || newest.entry === "value") && !isWord) {
        throw new FoundError(at, `a comma is missing before ${shown(lineFrom(this.text, at))}`);
      }
      newest.entry = newest.entry === "colon" || newest.entry === "value" ? "value" : "key";
    }
    if (sign in CLOSING) {
      this.open.push({ at, entry: "nothing" });
      return at + 1;
    }
    return isWord ? word(this.text, at, FLOW_WORD_END) : quoted(this.text, at);
  }
}
