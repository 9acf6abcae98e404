// Copying, also where the page comes by http from another machine and browsers give no clipboard.
import { texts } from "./texts.en.ts";

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  const focused = document.activeElement as HTMLElement | null;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!done) throw new Error(texts.errors.clipboard);
}
