import { Panel } from "@/components/ui/Panel";
import { imageUrl } from "../api/media";
import classes from "./Media.module.css";
import type { KeyPanelProps } from "./MediaBoard";
import { ObjectColumns } from "./ObjectColumns";

/** Below it a picture is drawn larger, each of its pixels as a square. */
const SMALL = 128;

/** The images of a key. A click opens one in its own size. */
export function ImagesPanel(props: KeyPanelProps) {
  return (
    <Panel title={props.shared.key} label={`${props.shared.key} images`} actions={props.fold} flush>
      <ObjectColumns {...props}>
        {({ id, images }, label, run) => (
          <ul className={classes.images}>
            {images.map(({ number, width, height, caption }) => (
              <li key={number}>
                <a
                  href={imageUrl(run.id, id, number)}
                  target="_blank"
                  rel="noreferrer"
                  aria-label={`Open ${caption || `image ${number + 1} of ${label}`}`}
                >
                  <img
                    src={imageUrl(run.id, id, number)}
                    alt={caption || `${label}, image ${number + 1}`}
                    width={width}
                    height={height}
                    data-small={Math.max(width, height) < SMALL || undefined}
                    loading="lazy"
                  />
                </a>
                {caption && <p className={classes.caption}>{caption}</p>}
              </li>
            ))}
          </ul>
        )}
      </ObjectColumns>
    </Panel>
  );
}
