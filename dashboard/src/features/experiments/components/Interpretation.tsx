import { Button } from "@mantine/core";
import { IconBulb, IconHelpCircle, IconListCheck, IconRefresh } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { CopyAction } from "@/components/ui/CopyBox";
import { Guarded } from "@/components/ui/Guarded";
import { Panel, PanelStates, type Source } from "@/components/ui/Panel";
import { age, plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { ExperimentAnalysis, Finding } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import classes from "./Experiments.module.css";

interface Props {
  source: Source<ExperimentAnalysis | null>;
  /** Trials that have ended since it was made. */
  newer: number;
  busy: boolean;
  empty: ReactNode;
  onAnalyze(): void;
}

const KINDS = [
  { kind: "recommendation", title: "Recommendation", icon: IconBulb },
  { kind: "finding", title: "Findings", icon: IconListCheck },
  { kind: "doubt", title: "Doubts", icon: IconHelpCircle },
] as const;

/** What the trials say, in sentences: the recommendation first, and last what speaks against it. */
export function Interpretation({ source, newer, busy, empty, onAnalyze }: Props) {
  const refused = useRoleRefusal("member");
  const sentences = source.data?.analysis.sentences ?? [];
  return (
    <Panel
      title="Interpretation"
      actions={
        source.data && (
          <>
            <MadeAt made={source.data} />
            <CopyAction value={sentences.map(({ text }) => text).join("\n")} label="Copy" />
          </>
        )
      }
      flush
    >
      <PanelStates source={source} what="the analysis" rows={6} isEmpty={(made) => made === null} empty={empty}>
        {() => (
          <>
            {newer > 0 && (
              <div className={classes.newer} role="status">
                <span>{plural(newer, "trial")} ended since this analysis was made.</span>
                <Guarded refused={refused}>
                  <Button
                    size="compact-xs"
                    variant="default"
                    leftSection={<IconRefresh size={13} />}
                    loading={busy}
                    onClick={onAnalyze}
                  >
                    Include {newer === 1 ? "it" : "them"}
                  </Button>
                </Guarded>
              </div>
            )}
            <Said sentences={sentences} />
          </>
        )}
      </PanelStates>
    </Panel>
  );
}

function Said({ sentences }: { sentences: readonly Finding[] }) {
  return (
    <div className={classes.interpretation}>
      {KINDS.map(({ kind, title, icon: Icon }) => {
        const said = sentences.filter((sentence) => sentence.kind === kind);
        return said.length > 0 ? (
          <section key={kind} data-kind={kind} className={classes.kind}>
            <h3 className={classes.kindTitle}>
              <Icon size={15} aria-hidden />
              {title}
            </h3>
            <ul className={classes.sentences}>
              {said.map(({ text }) => (
                <li key={text}>{text}</li>
              ))}
            </ul>
          </section>
        ) : null;
      })}
      {sentences.length === 0 && <p className={classes.sentences}>There is nothing to say before a trial has ended.</p>}
    </div>
  );
}

function MadeAt({ made: { made_at: at, analysis, complete } }: { made: ExperimentAnalysis }) {
  const now = useServerNow(10_000);
  const { completed, trials } = analysis;
  return (
    <span className="hint">
      {complete ? "" : "so far, "}
      {completed} of {plural(trials, "trial")} completed, {age(now - Date.parse(at))} ago
    </span>
  );
}
