/** YAML with the numbers of the coordinator (`training/spec/text.py`), each written as it was typed. Pure. */
import { parseDocument, type Document, type ParsedNode, type Scalar, type ScalarTag, type Tags } from "yaml";

const CORE = "tag:yaml.org,2002:";
const INT = /^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$/;
const FLOAT =
  /^(?:[-+]?(?:(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;

const NUMBERS: readonly ScalarTag[] = [
  { tag: `${CORE}int`, test: INT, identify: Number.isInteger },
  { tag: `${CORE}float`, test: FLOAT, identify: (value: unknown) => typeof value === "number" },
].map((tag) => ({ ...tag, default: true, resolve: numberIn, stringify: spelled }));

/** The document as nodes, which are changed in place: so comments stay, and the spelling of what is not changed. */
export function readYaml(text: string): Document.Parsed<ParsedNode> {
  return parseDocument(text, { customTags: withOwnNumbers });
}

function withOwnNumbers(tags: Tags): Tags {
  const own = NUMBERS.map(({ tag }) => tag);
  return [...tags.filter((tag) => typeof tag === "string" || !own.includes(tag.tag)), ...NUMBERS];
}

function numberIn(text: string): number {
  const digits = text.replaceAll("_", "").replace(/^[-+]/, "");
  const size = /inf$/i.test(digits) ? Infinity : Number(digits);
  return text.startsWith("-") ? -size : size;
}

/** As it was typed (`1e4`, `0x1F`, more digits than a number holds), for as long as that means the value. */
function spelled({ source, value }: Scalar): string {
  const isAsTyped = source && (INT.test(source) || FLOAT.test(source)) && Object.is(numberIn(source), value);
  return isAsTyped ? source : String(value).replace("Infinity", ".inf").replace("NaN", ".nan");
}
