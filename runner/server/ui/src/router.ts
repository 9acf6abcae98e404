// Which view is shown, and of what: the part of the address after #, so that the daemon serves one page.
import { signal } from "@preact/signals";

export type ViewName = "chat" | "models" | "activity" | "settings";
const VIEWS: readonly ViewName[] = ["chat", "models", "activity", "settings"];

export interface Place {
  view: ViewName;
  /** What follows the view's name: the id of a conversation, the name of a model. */
  item: string;
}

function read(): Place {
  const [, view = "", ...rest] = location.hash.split("/");
  const found = VIEWS.find((name) => name === view);
  try {
    return { view: found ?? "chat", item: found ? decodeURIComponent(rest.join("/")) : "" };
  } catch {
    return { view: found ?? "chat", item: "" };
  }
}

export const place = signal(read());
addEventListener("hashchange", () => (place.value = read()));

export function href(view: ViewName, item = ""): string {
  return `#/${view}${item ? `/${encodeURIComponent(item)}` : ""}`;
}

/** Show a view. replace: without a step in the browser's history. */
export function go(view: ViewName, item = "", replace = false): void {
  if (replace) {
    history.replaceState(null, "", href(view, item));
    place.value = read();
  } else location.hash = href(view, item);
}
