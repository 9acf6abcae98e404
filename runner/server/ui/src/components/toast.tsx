// Short messages at the edge of the page, read out when they come.
import { signal } from "@preact/signals";
import { texts } from "../texts.en.ts";
import { IconButton } from "./button.tsx";

interface Toast {
  id: number;
  text: string;
  kind: "info" | "error";
}

const SHOWN_MS = 6000;
const toasts = signal<Toast[]>([]);
let count = 0;

/** Show a message. Errors stay until they are dismissed. */
export function toast(text: string, kind: Toast["kind"] = "info"): void {
  const id = ++count;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  if (kind === "info") setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Show what went wrong. */
export function toastError(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), "error");
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, text, kind }) => (
        <div key={id} class={`toast ${kind}`} data-testid="toast">
          <span>{text}</span>
          <IconButton icon="close" label={texts.common.dismiss} onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  );
}
