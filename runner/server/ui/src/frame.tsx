// What surrounds every view: the way between them, the theme, the question for a key.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { apiKey, needsKey, useKey } from "./api.ts";
import { Button, IconButton } from "./components/button.tsx";
import { Dialog } from "./components/dialog.tsx";
import { Checkbox, TextField } from "./components/field.tsx";
import { Icon, type IconName } from "./components/icon.tsx";
import { Toasts } from "./components/toast.tsx";
import { href, place, type ViewName } from "./router.ts";
import { texts } from "./texts.en.ts";
import { theme, type Theme } from "./theme.ts";

const LINKS: [ViewName, IconName][] = [
  ["chat", "chat"],
  ["models", "models"],
  ["activity", "activity"],
  ["settings", "settings"],
];

/** aside: what the view has to show in the side bar, below the links. */
export function Frame({ aside, children }: { aside?: ComponentChildren; children: ComponentChildren }) {
  const open = useSignal(false);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    open.value = false;
  }, [place.value]);
  return (
    <div class={open.value ? "frame side-open" : "frame"} onKeyDown={(event) => event.key === "Escape" && (open.value = false)}>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        {texts.nav.skip}
      </button>
      <header class="bar">
        <IconButton icon={open.value ? "close" : "menu"} label={open.value ? texts.nav.close : texts.nav.open} aria-expanded={open.value} aria-controls="side" onClick={() => (open.value = !open.value)} testid="menu" />
        <span class="brand">
          <Flame />
          {texts.name}
        </span>
      </header>
      <aside class="side" id="side" aria-label={texts.nav.side}>
        <div class="brand wide">
          <Flame />
          {texts.name}
        </div>
        <nav aria-label={texts.nav.label}>
          {LINKS.map(([view, icon]) => (
            <a key={view} href={href(view)} aria-current={place.value.view === view ? "page" : undefined} data-testid={`nav-${view}`}>
              <Icon name={icon} />
              {texts.nav[view]}
            </a>
          ))}
        </nav>
        <div class="aside">{aside}</div>
        <ThemeSwitch />
      </aside>
      <main ref={main} tabindex={-1}>
        {children}
      </main>
      <Toasts />
      {needsKey.value && <KeyDialog />}
    </div>
  );
}

function Flame() {
  return (
    <svg class="flame" width="20" height="20" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M16.6 2c.9 5-1.4 7.4-4 10.3C10 15.2 7 18 7 22a9 8 0 0 0 18 0c0-3.6-1.7-6.2-3.3-8.2-.5 2-1.3 3-2.6 3.7C20 11.5 19.8 5.5 16.6 2z" />
    </svg>
  );
}

function ThemeSwitch() {
  return (
    <fieldset class="theme-switch" data-testid="theme">
      <legend class="unseen">{texts.theme.label}</legend>
      {(["system", "light", "dark"] as Theme[]).map((each) => (
        <label key={each}>
          <input type="radio" name="theme" value={each} checked={theme.value === each} onChange={() => (theme.value = each)} />
          <span>{texts.theme[each]}</span>
        </label>
      ))}
    </fieldset>
  );
}

function KeyDialog() {
  const key = useSignal("");
  const remember = useSignal(false);
  return (
    <Dialog
      title={texts.key.title}
      testid="key-dialog"
      onClose={() => (needsKey.value = false)}
      onSubmit={() => key.value.trim() && useKey(key.value.trim(), remember.value)}
      actions={
        <Button kind="primary" type="submit" testid="key-use">
          {texts.key.use}
        </Button>
      }
    >
      <p>{texts.key.body}</p>
      <TextField
        label={texts.key.field}
        type="password"
        autocomplete="off"
        testid="key-field"
        error={apiKey.value ? texts.key.refused : undefined}
        onInput={(event) => (key.value = event.currentTarget.value)}
      />
      <Checkbox label={texts.key.remember} testid="key-remember" onChange={(event) => (remember.value = event.currentTarget.checked)} />
    </Dialog>
  );
}
