import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { PanelStates } from "@/components/ui/Panel";
import { count } from "@/lib/format";
import type { MediaKey, MediaObject } from "@/lib/types";
import { mediaObjectQuery } from "../api/media";
import { nearest, shownRanks, type MediaRun } from "../media";
import classes from "./Media.module.css";
import type { KeyPanelProps } from "./MediaBoard";

interface Props extends KeyPanelProps {
  children(object: MediaObject, label: string, run: MediaRun, step: number): ReactNode;
}

/** What each run and each of its ranks has logged under a key, side by side. */
export function ObjectColumns({ shared, children, ...rest }: Props) {
  return (
    <div className={classes.columns}>
      {shared.runs.map(({ run, media }) => (
        <RunColumn key={run.id} {...rest} run={run} media={media}>
          {children}
        </RunColumn>
      ))}
    </div>
  );
}

function RunColumn({
  run,
  media,
  step,
  ranks,
  several,
  children,
}: Omit<Props, "shared" | "range"> & { run: MediaRun; media: MediaKey }) {
  const at = nearest(media.steps, step)!;
  const place = { key: media.key, kind: media.kind, step: at, ranks: shownRanks(media, ranks) };
  const query = useQuery(mediaObjectQuery(run.id, place, run.live));
  return (
    <PanelStates source={query} what={`${media.key} of step ${count(at)}`} rows={4}>
      {(found) =>
        found.objects.map((object) => {
          const named = [...(several ? [run.name] : []), ...(media.ranks.length > 1 ? [`rank ${object.rank}`] : [])];
          const when = found.step === step ? [] : [`step ${count(found.step)}`];
          return (
            <div key={object.id} className={classes.column}>
              {(named.length > 0 || when.length > 0) && (
                <h3 className={classes.heading}>{[...named, ...when].join(", ")}</h3>
              )}
              {object.error ? (
                <p role="alert" className={classes.problem}>
                  {object.error}
                </p>
              ) : (
                children(object, [media.key, ...named, `step ${count(found.step)}`].join(", "), run, found.step)
              )}
            </div>
          );
        })
      }
    </PanelStates>
  );
}
