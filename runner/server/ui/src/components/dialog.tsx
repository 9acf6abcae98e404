// A modal dialog: the browser's own, which keeps the focus inside and gives it back.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { texts } from "../texts.en.ts";
import { Button, IconButton } from "./button.tsx";

interface Shown {
  title: string;
  onClose: () => void;
  children?: ComponentChildren;
  /** The buttons at its foot. */
  actions?: ComponentChildren;
  /** What Enter in a field does. */
  onSubmit?: () => void;
  wide?: boolean;
  testid?: string;
}

/** Open as long as it is rendered. */
export function Dialog({ title, onClose, children, actions, onSubmit, wide, testid }: Shown) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    if (shown && !shown.open) shown.showModal();
    return () => {
      shown?.close();
      if (before instanceof HTMLElement) before.focus(); // who is taken away gives no focus back
    };
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    onSubmit?.();
  };
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      data-testid={testid}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <form class="dialog-body" onSubmit={submit}>
        <header>
          <h2 id={id}>{title}</h2>
          <IconButton icon="close" label={texts.common.close} onClick={onClose} />
        </header>
        <div class="dialog-content">{children}</div>
        {actions && <footer>{actions}</footer>}
      </form>
    </dialog>
  );
}

/** A question before something that cannot be undone. */
export function Confirm({ title, body, yes, onYes, onClose, testid }: { title: string; body: ComponentChildren; yes: string; onYes: () => void; onClose: () => void; testid?: string }) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      onSubmit={onYes}
      testid={testid}
      actions={
        <>
          <Button onClick={onClose}>{texts.common.cancel}</Button>
          <Button kind="danger" type="submit" testid="confirm-yes">
            {yes}
          </Button>
        </>
      }
    >
      <p>{body}</p>
    </Dialog>
  );
}
