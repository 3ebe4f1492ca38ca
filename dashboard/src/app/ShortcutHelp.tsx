import { Kbd } from "@mantine/core";
import { Dialog } from "@/components/ui/Dialog";
import { MOD_KEY } from "./modKey";
import classes from "./Shell.module.css";

const SHORTCUTS: readonly (readonly [keys: readonly string[], what: string])[] = [
  [[MOD_KEY, "K"], "Go to a page, a job or an experiment"],
  [["/"], "Search on this page"],
  [["?"], "Show these shortcuts"],
  [["←", "→"], "Move between tabs, or between marks on a chart"],
  [["Home", "End"], "Go to the first or last tab"],
  [["F1"], "Open the documentation of a form's field"],
  [["Esc"], "Close a dialog or a menu"],
];

export function ShortcutHelp({ opened, onClose }: { opened: boolean; onClose(): void }) {
  return (
    <Dialog opened={opened} onClose={onClose} title="Keyboard shortcuts">
      <dl className={classes.shortcuts}>
        {SHORTCUTS.map(([keys, what]) => (
          <div key={what}>
            <dt>{what}</dt>
            <dd>
              {keys.map((key) => (
                <Kbd key={key}>{key}</Kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
