import { dirname, posix, relative, resolve, sep } from "node:path";

const SOURCE = resolve(import.meta.dirname, "../src");

/** The layer of a path below `src`: "app", "features/<noun>", "testing", or "shared" for everything else. */
function layerOf(path) {
  const [top, noun] = path.split("/");
  if (top === "features" && noun) return `features/${noun}`;
  return top === "app" || top === "testing" ? top : "shared";
}

/** The path below `src` that an import names, or null for a package. */
function targetOf(file, specifier) {
  if (specifier.startsWith("@/")) return posix.normalize(specifier.slice(2));
  if (!specifier.startsWith(".")) return null;
  return relative(SOURCE, resolve(dirname(file), specifier))
    .split(sep)
    .join("/");
}

/** Why a file in the layer `from` may not import from the layer `to`; null if it may. */
function objection(from, to, isTest) {
  if (from === to || to === "shared" || from === "testing") return null;
  if (to === "testing") return isTest ? null : "only tests import from testing";
  if (from === "app") return null;
  return from.startsWith("features/") && to.startsWith("features/")
    ? `${from} may not import from ${to}: app puts features together`
    : `${from} may not import from ${to}: imports go app -> features -> shared`;
}

/** Imports go app -> features -> shared, whether they are written as `@/features/...` or as a relative path. */
const layers = {
  meta: { type: "problem", schema: [], messages: { layer: "{{why}}" } },
  create(context) {
    const path = relative(SOURCE, context.filename).split(sep).join("/");
    if (path.startsWith("..")) return {};
    const isTest = /\.test\.tsx?$/.test(path);
    const check = ({ source }) => {
      if (typeof source?.value !== "string") return;
      const target = targetOf(context.filename, source.value);
      const why = target === null ? null : objection(layerOf(path), layerOf(target), isTest);
      if (why) context.report({ node: source, messageId: "layer", data: { why } });
    };
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
    };
  },
};

export default { rules: { layers } };
