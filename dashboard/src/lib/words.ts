/** The words of a command line, as a shell without variables and patterns would split it; null where a quote is not closed. */
export function wordsOf(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote: string | null = null;
  for (let at = 0; at < line.length; at++) {
    const character = line[at]!;
    const next = line[at + 1];
    const isEscape = quote === null ? next !== undefined : quote === '"' && (next === '"' || next === "\\");
    if (character === "\\" && isEscape) word = (word ?? "") + line[++at]!;
    else if (quote !== null) {
      if (character === quote) quote = null;
      else word = (word ?? "") + character;
    } else if (character === "'" || character === '"') {
      quote = character;
      word ??= "";
    } else if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + character;
  }
  if (quote !== null) return null;
  return word === null ? words : [...words, word];
}

const PLAIN = /^[\w@%+=:,./-]+$/;

/** The command line whose words these are: `wordsOf` gives them back. */
export function lineOf(words: readonly unknown[]): string {
  const texts = words.map(String);
  return texts.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(" ");
}
