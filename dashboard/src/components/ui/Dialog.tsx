import { Modal, type ModalProps } from "@mantine/core";
import { DialogFocus, useFocusBefore } from "./DialogFocus";

interface Props extends Omit<ModalProps, "opened" | "trapFocus" | "closeButtonProps"> {
  /** What the cross is called. */
  closeLabel?: string;
}

/** A dialog over the page, open or not there. Keys that are typed right after the one that asked for it reach its first field. */
export function Dialog({ opened = true, ...props }: Props & { opened?: boolean }) {
  return opened && <OpenDialog {...props} />; // one that opens after it is drawn has its fields two frames later
}

function OpenDialog({ closeLabel = "Close", children, ...others }: Props) {
  const before = useFocusBefore();
  return (
    <Modal opened centered trapFocus={false} closeButtonProps={{ "aria-label": closeLabel }} {...others}>
      <DialogFocus before={before} />
      {children}
    </Modal>
  );
}
