/** Leaves out of Mantine's style sheet the rules of components that the dashboard does not use: two thirds of it. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import postcss from "postcss";
import type { Plugin } from "vite";

const INDEX = join(import.meta.dirname, "node_modules/@mantine/core/esm/index.mjs");
const SOURCES = join(import.meta.dirname, "src");
const IMPORTED = /import (?:\{([^}]+)\}|\w+) from "([^"]+)"/g;
/** Mantine's class names are hashes. */
const CLASS = /m_[0-9a-f]+/g;

export function usedMantineStyles(): Plugin {
  return {
    name: "used-mantine-styles",
    apply: "build",
    enforce: "pre",
    transform: {
      filter: { id: /@mantine\/core\/styles\.css$/ },
      handler: (css) => ({ code: onlyRulesOf(usedClasses(), css), map: null }),
    },
  };
}

/** The rules without those for classes that are not in `used`. */
export function onlyRulesOf(used: ReadonlySet<string>, css: string): string {
  const sheet = postcss.parse(css);
  sheet.walkRules((rule) => {
    const kept = rule.selectors.filter((selector) => (selector.match(CLASS) ?? []).every((name) => used.has(name)));
    if (kept.length === 0) rule.remove();
    else rule.selectors = kept;
  });
  sheet.walkAtRules((rule) => {
    if (rule.nodes?.length === 0) rule.remove();
  });
  return sheet.toString();
}

/** The classes of the components that our sources import from Mantine, and of those that these are made of. */
export function usedClasses(): Set<string> {
  const files = new Map([...imports(INDEX)].flatMap(([names, file]) => names.map((name) => [name, file] as const)));
  const waiting = readdirSync(SOURCES, { recursive: true, encoding: "utf8" })
    .filter((source) => source.endsWith(".tsx"))
    .flatMap((source) => [...imports(join(SOURCES, source))])
    .filter(([, module]) => module === "@mantine/core")
    .flatMap(([names]) => names.flatMap((name) => files.get(name) ?? []));
  const seen = new Set<string>();
  const classes = new Set<string>();
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (seen.has(file)) continue;
    seen.add(file);
    readFileSync(file, "utf8")
      .match(CLASS)
      ?.forEach((name) => classes.add(name));
    waiting.push(...[...imports(file)].map(([, module]) => module).filter((module) => module.endsWith(".mjs")));
  }
  return classes;
}

/** The names that a file imports, with the module that they come from; relative modules as paths. */
function* imports(file: string): Generator<[string[], string]> {
  for (const [, names = "", module] of readFileSync(file, "utf8").matchAll(IMPORTED)) {
    const path = module!.startsWith(".") ? join(dirname(file), module!) : module!;
    yield [
      names.split(",").map((name) =>
        name
          .replace(/^\s*type /, "")
          .split(" as ")[0]!
          .trim(),
      ),
      path,
    ];
  }
}
