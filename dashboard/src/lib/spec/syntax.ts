/**
 * Usual mistakes of people who write YAML, in plain English: what a parser says of them is about its own rules. The coordinator and the command
 * line find the same mistakes in the same words (`training/spec/syntax.py`); `tests/training/spec/yaml_mistakes.json` holds both to it. Pure.
 */
import {
  BLANKS,
  Brackets,
  CLOSING,
  columnOf,
  endOf,
  FoundError,
  inQuotes,
  lineFrom,
  nextOf,
  placeOf,
  PROPERTY,
  quoted,
  shown,
  UnfamiliarError,
  word,
  WORD_END,
} from "./syntaxValues";

/** Lists and mappings inside each other that are read here. */
const DEEPEST = 64;
const END_OF_LINE = /[ \t]*(?:\n|$)|[ \t]+#|(?<=[ \t])#/y;
const TEXT_HEADER = /[|>](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:\n|$|(?<=[ \t])#)/y;
const MARKS = /(?:<<<<<<<|=======|>>>>>>>)(?=[ \n]|$)/y;

/** One mistake in a text: where it is, line and column from 1, and what to do about it. */
export interface Mistake {
  line: number;
  column: number;
  message: string;
}

/** The first usual mistake in a text that is no YAML; null: it is an unusual one. */
export function findMistake(written: string): Mistake | null {
  const text = written.replaceAll("\r\n", "\n");
  try {
    new Lines(text).read();
  } catch (error) {
    if (error instanceof FoundError) return { ...placeOf(text, error.at), message: error.message };
    if (!(error instanceof UnfamiliarError)) throw error;
  }
  return null;
}

interface Level {
  column: number;
  kind: "list" | "mapping";
}

/**
 * A text line by line: which lists and mappings are open, and what the newest line has left: a name or a dash without a value (`open`), a word
 * that may go on (`word`), a line without a name (`text`), or a value that is complete (`closed`).
 */
class Lines {
  private levels: Level[] = [];
  private left: "open" | "word" | "text" | "closed" = "open";
  /** Where the line without a name begins. */
  private lone = 0;
  /** Lines deeper than this are a text in a block (`|` or `>`). */
  private textColumn: number | null = null;

  constructor(private readonly text: string) {}

  read(): void {
    for (let at = 0; at < this.text.length;) {
      const end = this.text.indexOf("\n", this.line(at));
      at = end < 0 ? this.text.length : end + 1;
    }
  }

  private column(at: number): number {
    return columnOf(this.text, at) - 1;
  }

  private innermost(): number {
    return this.levels.at(-1)?.column ?? -1;
  }

  /** Reads the line that begins at `start`, and returns an index in the last line that was read. */
  private line(start: number): number {
    const at = endOf(BLANKS, this.text, start);
    if (["", "\n", "#"].includes(this.text.charAt(at))) return at;
    if (this.textColumn !== null && at - start > this.textColumn) return at;
    this.textColumn = null;
    this.checkBeginning(start, at);
    if (this.text.startsWith("---", start) && endOf(END_OF_LINE, this.text, start + 3) >= 0) return at;
    if ((this.left === "word" || this.left === "text") && at - start > this.innermost()) {
      const end = nextOf(WORD_END, this.text, at);
      return this.text[end] === ":" ? this.named(at, end) : at;
    }
    return this.content(at);
  }

  private checkBeginning(start: number, at: number): void {
    const tab = this.text.slice(start, at).indexOf("\t");
    const mark = this.text.slice(start, start + 3);
    if (tab >= 0) {
      const wayOut = "YAML takes spaces only: replace it, best by two of them";
      throw new FoundError(start + tab, `a tab stands where the line is indented; ${wayOut}`);
    }
    if (endOf(MARKS, this.text, start) >= 0) {
      const conflict = `${this.text.slice(start, start + 7)} is a mark of a merge conflict in git`;
      throw new FoundError(start, `${conflict}; resolve it, and remove the line`);
    }
    if (this.text.startsWith("```", at)) throw new FoundError(at, "``` is a mark of Markdown; remove the line");
    if ((mark === "---" || mark === "...") && endOf(END_OF_LINE, this.text, start + 3) >= 0) {
      if (this.levels.length === 0 && this.left === "open") return;
      throw new FoundError(start, `${mark} ends the document; one is read here: remove what does not belong to it`);
    }
    if (this.text[start] === "%") {
      throw new FoundError(
        start,
        "a line cannot begin with %; put quotes around a name that does, or write # for a comment",
      );
    }
  }

  /** Reads from the first sign of a line, or the first after a dash. */
  private content(first: number): number {
    let begin = first;
    while (this.isDash(begin)) {
      this.enter("list", begin);
      begin = endOf(BLANKS, this.text, begin + 1);
      if (this.isEnd(begin)) return begin;
    }
    const at = Math.max(begin, endOf(PROPERTY, this.text, begin));
    if (this.isEnd(at)) return at;
    if ("|>".includes(this.text.charAt(at))) return this.textBlock(at);
    const { end, isWord } = this.node(at);
    const colon = endOf(BLANKS, this.text, end);
    const isName = !isWord || colon === end || /^[ \n]?$/.test(this.text.charAt(colon + 1));
    if (this.text[colon] === ":" && isName) return this.named(begin, colon);
    if (isWord) this.takeLoneText(at);
    else this.checkAfter(at, end);
    return end;
  }

  private isDash(at: number): boolean {
    return this.text[at] === "-" && /^[ \t\n]?$/.test(this.text.charAt(at + 1));
  }

  private isEnd(at: number): boolean {
    return ["", "\n"].includes(this.text.charAt(at)) || endOf(END_OF_LINE, this.text, at) >= 0;
  }

  /** The index after the value at `at`, and whether it is a word without quotes. */
  private node(at: number): { end: number; isWord: boolean } {
    const sign = this.text.charAt(at);
    if ("\"'".includes(sign)) return { end: quoted(this.text, at), isWord: false };
    if (sign in CLOSING) return { end: new Brackets(this.text, at, this.innermost()).read(), isWord: false };
    if ("]},".includes(sign)) throw this.stray(at);
    return { end: word(this.text, at), isWord: true };
  }

  private stray(at: number): FoundError {
    const sign = this.text.charAt(at);
    if (sign === ",") return new FoundError(at, "a comma stands after a value that is in no brackets; remove it");
    return new FoundError(at, `the bracket ${sign} closes none that is open; remove it, or open one before`);
  }

  /** Reads a field whose name begins at `begin` and ends before `colon`. */
  private named(begin: number, colon: number): number {
    this.enter("mapping", begin);
    const next = endOf(BLANKS, this.text, colon + 1);
    const at = Math.max(next, endOf(PROPERTY, this.text, next));
    if (this.isEnd(at)) {
      this.left = "open";
      return at;
    }
    if ("|>".includes(this.text.charAt(at))) return this.textBlock(at);
    if (this.isDash(at)) {
      const wayOut = "begin it on the next line, or write it in brackets: [a, b]";
      throw new FoundError(at, `a list cannot begin beside its name; ${wayOut}`);
    }
    const { end, isWord } = this.node(at);
    if (!isWord) this.checkAfter(at, end);
    else if (this.text[end] === ":") {
      const value = shown(lineFrom(this.text, at));
      throw new FoundError(at, `the value ${value} has a colon before a blank; put it in quotes: ${inQuotes(value)}`);
    } else this.left = "word";
    return end;
  }

  private textBlock(at: number): number {
    if (endOf(TEXT_HEADER, this.text, at) < 0) {
      const wayOut = `put it there, or the value in quotes: ${inQuotes(shown(lineFrom(this.text, at)))}`;
      throw new FoundError(at, `${this.text[at]} begins a text on the following lines; ${wayOut}`);
    }
    this.left = "closed";
    this.textColumn = this.innermost();
    return at;
  }

  /** Checks what follows a value in quotes or brackets. */
  private checkAfter(start: number, end: number): void {
    this.left = "closed";
    const at = endOf(BLANKS, this.text, end);
    if (this.isEnd(at)) return;
    if ("]},".includes(this.text.charAt(at))) throw this.stray(at);
    const after = shown(lineFrom(this.text, at));
    if (this.text.charAt(start) in CLOSING) {
      throw new FoundError(at, `${after} follows the closing bracket; remove it, or put it into the brackets`);
    }
    throw new FoundError(at, `${after} follows the closing quote; put the whole value into the quotes`);
  }

  /** Closes what is indented deeper than `column`, and returns whether there was any. */
  private leave(column: number): boolean {
    const before = this.levels.length;
    while (this.innermost() > column) this.levels.pop();
    return this.levels.length < before;
  }

  /** Begins an entry of a list or a field of a mapping, which may be the first one. */
  private enter(kind: Level["kind"], at: number): void {
    const column = this.column(at);
    const left = this.left;
    const columns = this.levels.map((each) => each.column + 1);
    if (this.levels.length >= DEEPEST) throw new UnfamiliarError();
    const hasLeft = this.leave(column);
    this.left = "open";
    if (this.innermost() === column) this.goOn(kind, at, column, left === "open" && !hasLeft);
    else if (hasLeft) {
      const known = [...new Set(columns)].sort((a, b) => a - b).join(" or ");
      const where = `this line begins at column ${column + 1}, where no other does`;
      throw new FoundError(at, `${where}; the ones above begin at ${known}: align it`);
    } else if (left === "text") throw new FoundError(this.lone, ofLoneText(lineFrom(this.text, this.lone)));
    else if (left === "open") this.levels.push({ column, kind });
    else if (kind === "list") throw new UnfamiliarError();
    else {
      const wayOut = "align them, or remove that value";
      throw new FoundError(at, `this line is indented deeper than the one above, which has a value; ${wayOut}`);
    }
  }

  /** Goes on in the list or mapping at the same column, or begins a list below a name without indenting it. */
  private goOn(kind: Level["kind"], at: number, column: number, mayBegin: boolean): void {
    if (this.levels.at(-1)!.kind === kind) return;
    const outer = this.levels.at(-2);
    if (kind === "list" && mayBegin) this.levels.push({ column, kind });
    else if (kind === "mapping" && outer?.column === column && outer.kind === "mapping") this.levels.pop();
    else {
      throw new FoundError(
        at,
        kind === "list"
          ? "this line begins with a dash, and the ones beside it with names; indent the list below its name"
          : "this line begins with a name, and the ones beside it with dashes; align it with the field that it belongs to",
      );
    }
  }

  /** Takes a line that has no name: the value of the line above, or a mistake. */
  private takeLoneText(at: number): void {
    const column = this.column(at);
    const hasLeft = this.leave(column);
    if (hasLeft || this.innermost() === column) throw new FoundError(at, ofLoneText(lineFrom(this.text, at)));
    if (this.left === "closed") throw new UnfamiliarError();
    this.left = "text";
    this.lone = at;
  }
}

/** What is wrong with a line that has no name before a colon. */
function ofLoneText(line: string): string {
  const told = shown(line);
  const field = (found: RegExpExecArray) => `write ${found[1]}: ${shown(found[2]!)}`;
  const glued = /^([\w.-]+):(\S.*)/.exec(line);
  if (glued) return `${told} has no space after its colon; ${field(glued)}`;
  const equated = /^([\w.-]+)\s*=\s*(\S.*)/.exec(line);
  if (equated) return `${told} has no colon; ${field(equated)}`;
  const pair = /^([\w.-]+)\s+(\S+)$/.exec(line);
  if (pair) return `${told} has no colon after the name; ${field(pair)}`;
  if (/^[\w.-]+$/.test(line)) return `${told} has no colon; write ${told}: and its value or, below, its fields`;
  return `${told} is no field, which is a name, a colon, a space and a value; put a text of several words in quotes after its name`;
}
