/** YAML as the coordinator reads it (`training/spec/text.py`): `tests/training/spec/yaml_values.json` holds both to one meaning. Pure. */
import { parseDocument, stringify, type Document, type ParsedNode, type Scalar, type ScalarTag, type Tags } from "yaml";

const CORE = "tag:yaml.org,2002:";
const BOOL = /^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$/;
const INT = /^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$/;
const FLOAT =
  /^(?:[-+]?(?:(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;

const SCALARS: readonly ScalarTag[] = [
  { tag: `${CORE}bool`, test: BOOL, identify: (value: unknown) => typeof value === "boolean" },
  { tag: `${CORE}int`, test: INT, identify: Number.isInteger },
  { tag: `${CORE}float`, test: FLOAT, identify: (value: unknown) => typeof value === "number" },
].map((tag) => ({ ...tag, default: true, resolve: meaningOf, stringify: spelled }));

/** The document as nodes, which are changed in place: so comments stay, and the spelling of what is not changed. */
export function readYaml(text: string): Document.Parsed<ParsedNode> {
  return parseDocument(text, { customTags: withOwnScalars, stringKeys: true });
}

export function toYaml(value: unknown): string {
  return stringify(value, { customTags: withOwnScalars });
}

function withOwnScalars(tags: Tags): Tags {
  const own = SCALARS.map(({ tag }) => tag);
  return [...tags.filter((tag) => typeof tag === "string" || !own.includes(tag.tag)), ...SCALARS];
}

/** What a word without quotes means; undefined: itself. */
function meaningOf(word: string): boolean | number | undefined {
  if (BOOL.test(word)) return /^(?:yes|true|on)$/i.test(word);
  return INT.test(word) || FLOAT.test(word) ? numberIn(word) : undefined;
}

function numberIn(word: string): number {
  const digits = word.replaceAll("_", "").replace(/^[-+]/, "");
  const size = /inf$/i.test(digits) ? Infinity : Number(digits);
  return word.startsWith("-") ? -size : size;
}

/** As it was typed (`1e4`, `0x1F`, `yes`, more digits than a number holds), for as long as that means the value. */
function spelled({ source, value }: Scalar): string {
  if (source !== undefined && Object.is(meaningOf(source), value)) return source;
  return Object.is(value, -0) ? "-0" : String(value).replace("Infinity", ".inf").replace("NaN", ".nan");
}
