import { autocompletion, completionKeymap, type CompletionContext } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { indentUnit } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useEffectEvent, useRef } from "react";
import { suggest } from "@/lib/spec/completion";
import { rangeOf } from "@/lib/spec/document";
import type { Issue, Schema } from "@/lib/spec/schema";
import { editorTheme } from "./editorTheme";

interface Props {
  /** What the document is, for who cannot see it. */
  label?: string;
  text: string;
  schema: Schema;
  issues: readonly Issue[];
  problems: readonly { from: number; to: number; message: string }[];
  /** A place that gets the focus. */
  target?: { pointer: string } | null;
  onChange(text: string): void;
}

/** The document as text, with completion and problems at their place. Escape, then Tab leaves the editor. */
export function YamlEditor({ label = "Job spec as YAML", text, schema, issues, problems, target, onChange }: Props) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const changed = useEffectEvent(onChange);
  const initial = useEffectEvent(() => ({ text, label }));
  const complete = useEffectEvent((context: CompletionContext) => completions(schema, context));

  useEffect(() => {
    const editor = new EditorView({
      parent: root.current!,
      state: EditorState.create({
        doc: initial().text,
        extensions: [
          lineNumbers(),
          history(),
          yaml(),
          indentUnit.of("  "),
          lintGutter(),
          editorTheme,
          EditorView.lineWrapping,
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, ...lintKeymap]),
          autocompletion({ override: [(context) => complete(context)] }),
          EditorView.contentAttributes.of({ "aria-label": initial().label, tabindex: "0" }),
          EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
        ],
      }),
    });
    view.current = editor;
    return () => editor.destroy();
  }, []);

  useEffect(() => {
    const editor = view.current!;
    const old = editor.state.doc.toString();
    if (old !== text) editor.dispatch({ changes: { from: 0, to: old.length, insert: text } });
  }, [text]);

  useEffect(() => {
    const editor = view.current!;
    editor.dispatch(setDiagnostics(editor.state, diagnostics(text, issues, problems)));
  }, [text, issues, problems]);

  const place = useEffectEvent((pointer: string) => rangeOf(text, pointer));
  useEffect(() => {
    if (!target) return;
    const { from, to } = place(target.pointer);
    view.current!.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true });
    view.current!.focus();
  }, [target]);

  return <div ref={root} />;
}

function diagnostics(text: string, issues: readonly Issue[], problems: Props["problems"]): Diagnostic[] {
  const clamp = (offset: number) => Math.max(0, Math.min(offset, text.length));
  const all = [
    ...problems,
    ...issues.map((issue) => ({
      ...rangeOf(text, issue.pointer),
      message: `${issue.pointer || "spec"}: ${issue.message}`,
    })),
  ];
  return all.map(({ from, to, message }) => ({ from: clamp(from), to: clamp(to), message, severity: "error" }));
}

function completions(schema: Schema, context: CompletionContext) {
  const word = context.matchBefore(/[\w.-]*/);
  const afterColon = /:\s$/.test(context.state.doc.sliceString(Math.max(0, context.pos - 2), context.pos));
  if (!context.explicit && !afterColon && (!word || word.from === word.to)) return null;
  const options = suggest(schema, context.state.doc.toString(), context.pos);
  if (options.length === 0) return null;
  return {
    from: word?.from ?? context.pos,
    options: options.map(({ label, text, detail }) => ({ label, apply: text, info: detail })),
  };
}
