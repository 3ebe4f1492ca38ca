import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

/** Colours by the application's tokens: both schemes without rebuilding the editor. */
export const editorTheme: Extension = [
  EditorView.editorAttributes.of({ class: "verbatim" }),
  EditorView.theme({
    "&": { fontSize: "12.5px", backgroundColor: "transparent", color: "var(--text)" },
    "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
    ".cm-scroller": { fontFamily: "inherit", lineHeight: "1.65", maxHeight: "72vh" },
    ".cm-content": { caretColor: "var(--text)", padding: "12px 0" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
      backgroundColor: "var(--active-soft)",
    },
    ".cm-tooltip": {
      backgroundColor: "var(--surface)",
      border: "1px solid var(--line)",
      borderRadius: "6px",
      color: "var(--text)",
    },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--active-soft)", color: "var(--text)" },
  }),
  syntaxHighlighting(
    HighlightStyle.define([
      { tag: tags.definition(tags.propertyName), color: "var(--accent-text)" },
      { tag: tags.propertyName, color: "var(--accent-text)" },
      { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
      { tag: [tags.string, tags.content], color: "var(--text)" },
      { tag: [tags.number, tags.bool, tags.null], color: "var(--good-text)" },
    ]),
  ),
];
