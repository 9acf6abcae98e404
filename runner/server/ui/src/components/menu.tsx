// A button that opens a short list of actions, moved through with the arrow keys.
import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { IconButton } from "./button.tsx";
import { Icon, type IconName } from "./icon.tsx";

export interface MenuEntry {
  text: string;
  icon: IconName;
  run: () => void;
  testid?: string;
}

export function Menu({ label, entries, testid, icon = "more" }: { label: string; entries: MenuEntry[]; testid?: string; icon?: IconName }) {
  const open = useSignal(false);
  const id = useId();
  const around = useRef<HTMLDivElement>(null);
  const items = () => [...(around.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [])];

  useEffect(() => {
    if (!open.value) return;
    items()[0]?.focus();
    const close = (event: Event) => {
      if (!around.current?.contains(event.target as Node)) open.value = false;
    };
    addEventListener("pointerdown", close);
    addEventListener("focusin", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("focusin", close);
    };
  }, [open.value]);

  const leave = () => {
    open.value = false;
    around.current?.querySelector<HTMLButtonElement>(".icon-button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open.value) return;
    const all = items();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    if (event.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
    else if (event.key === "ArrowUp") all.at(at - 1)?.focus();
    else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" ref={around} onKeyDown={onKeyDown}>
      <IconButton icon={icon} label={label} aria-haspopup="menu" aria-expanded={open.value} aria-controls={id} testid={testid} onClick={() => (open.value = !open.value)} />
      {open.value && (
        <div role="menu" id={id} aria-label={label} class="menu-list">
          {entries.map(({ text, icon: shown, run, testid: entryId }) => (
            <button
              key={text}
              type="button"
              role="menuitem"
              tabindex={-1}
              data-testid={entryId}
              onClick={() => {
                leave();
                run();
              }}
            >
              <Icon name={shown} size={16} />
              {text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
