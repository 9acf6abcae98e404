// The chat: which model answers, the conversation, the field to write in.
import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, keysGiven } from "../../api.ts";
import { IconButton } from "../../components/button.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { toastError } from "../../components/toast.tsx";
import { go, href, place } from "../../router.ts";
import { texts } from "../../texts.en.ts";
import { resumeAll } from "./answering.ts";
import "./chat.css";
import { addImages, Composer, stopShown } from "./composer.tsx";
import { isRunning } from "./model.ts";
import { loaded, models, readLoaded, readModels, shownModel, type Tag } from "./models.ts";
import { isChanged, SettingsDialog } from "./settings.tsx";
import { begin, changeSettings, conversations, current, pathOf, settingsNow, show, structure, versionOf } from "./threads.ts";
import { Turns } from "./turns.tsx";

const t = texts.chat;
const begun = begin().then(resumeAll);

export default function Chat() {
  const settingsOpen = useSignal(false);
  const shortcutsOpen = useSignal(false);
  const dropping = useSignal(false);
  const { item } = place.value;

  useEffect(() => void begun.then(() => show(item)), [item]);
  useEffect(() => {
    // Without a key the page asks for one; an answer loads its model, which changes what is loaded.
    readModels().then(chooseModel, (error: unknown) => error instanceof ApiError && error.status === 401 || toastError(error));
    readLoaded().catch(() => {});
  }, [keysGiven.value, structure.value]);
  useEffect(() => {
    const listen = (event: KeyboardEvent) => onShortcut(event, () => (shortcutsOpen.value = true));
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);

  const thread = current.value?.conversation.id === item ? current.value : null;
  return (
    <section
      class={dropping.value ? "chat dropping" : "chat"}
      data-testid="view-chat"
      onDragOver={(event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        dropping.value = true;
      }}
      onDragLeave={(event) => event.currentTarget === event.target && (dropping.value = false)}
      onDrop={(event) => {
        dropping.value = false;
        if (!event.dataTransfer?.files.length) return;
        event.preventDefault();
        addImages([...event.dataTransfer.files]).catch(toastError);
      }}
    >
      <Head onSettings={() => (settingsOpen.value = true)} onShortcuts={() => (shortcutsOpen.value = true)} />
      {thread ? <Turns key={thread.conversation.id} thread={thread} /> : item ? <div /> : <Welcome />}
      <Composer />
      <Announcer />
      {dropping.value && <div class="drop-hint">{t.dropHere}</div>}
      {settingsOpen.value && <SettingsDialog onClose={() => (settingsOpen.value = false)} />}
      {shortcutsOpen.value && <Shortcuts onClose={() => (shortcutsOpen.value = false)} />}
    </section>
  );
}

/** Have a model that is there, where none is chosen yet. */
function chooseModel(): void {
  const { model } = settingsNow();
  const first = models.value?.[0]?.name;
  if (first && !current.value && !models.value?.some((each) => each.name === model)) changeSettings({ model: first });
}

function onShortcut(event: KeyboardEvent, help: () => void): void {
  const control = event.ctrlKey || event.metaKey;
  const inField = (event.target as HTMLElement).closest("input, textarea, select, dialog");
  const focus = (id: string) => document.getElementById(id)?.focus();
  if (control && event.shiftKey && event.key.toLowerCase() === "o") go("chat");
  else if (control && event.key.toLowerCase() === "k") focus("search");
  else if (event.key === "Escape" && !(event.target as HTMLElement).closest("dialog") && stopShown()) focus("message");
  else if (event.key === "/" && !inField) focus("message");
  else if (event.key === "?" && !inField) help();
  else return;
  event.preventDefault();
}

function Head({ onSettings, onShortcuts }: { onSettings: () => void; onShortcuts: () => void }) {
  structure.value;
  const settings = settingsNow();
  const two = Boolean(settings.second);
  const others = (models.value ?? []).filter((each) => each.name !== settings.model);
  return (
    <header class="chat-head">
      <h1 class="unseen">{current.value?.conversation.title ?? t.newChat}</h1>
      <ModelChoice label={t.model} testid="model" value={settings.model} onChange={(model) => changeSettings({ model })} />
      {two && <ModelChoice label={t.secondModel} testid="second-model" value={settings.second} onChange={(second) => changeSettings({ second })} />}
      <span class="space" />
      <IconButton icon="columns" label={two ? t.compareEnd : t.compare} aria-pressed={two} testid="compare" onClick={() => changeSettings({ second: two ? "" : (others[0]?.name ?? settings.model) })} />
      <IconButton icon="sliders" class={isChanged(settings) ? "changed" : ""} label={isChanged(settings) ? `${t.settings} (${t.changed})` : t.settings} testid="chat-settings" onClick={onSettings} />
      <IconButton icon="info" label={t.shortcuts} testid="shortcuts" onClick={onShortcuts} />
    </header>
  );
}

function ModelChoice({ label, value, testid, onChange }: { label: string; value: string; testid: string; onChange: (model: string) => void }) {
  const all = models.value ?? [];
  const title = (tag: Tag) => [tag.name, tag.details.parameter_size, tag.details.quantization_level].filter(Boolean).join(" · ");
  return (
    <select class="model-choice" aria-label={label} value={value} data-testid={testid} onChange={(event) => onChange(event.currentTarget.value)}>
      {!all.some((tag) => tag.name === value) && <option value={value}>{value || t.chooseModel}</option>}
      {all.map((tag) => (
        <option key={tag.name} value={tag.name}>
          {title(tag)}
        </option>
      ))}
    </select>
  );
}

function Welcome() {
  const { model } = settingsNow();
  if (model) shownModel(model);
  loaded.value;
  return (
    <div class="welcome">
      <p class="welcome-title">{t.welcome}</p>
      {models.value?.length === 0 ? (
        <p>
          {t.noModels} <a href={href("models")}>{t.getModels}</a>
        </p>
      ) : (
        <p class="quiet">{t.welcomeMore}</p>
      )}
    </div>
  );
}

function Shortcuts({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={t.shortcuts} onClose={onClose} testid="shortcuts-dialog">
      <dl class="shortcuts">
        {t.shortcutList.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/** Says to who cannot see it that an answer begins and ends, not what it says: that can be read there. */
function Announcer() {
  const said = useSignal("");
  useSignalEffect(() => {
    structure.value;
    const last = current.value ? pathOf(current.value).at(-1) : undefined;
    if (last?.role !== "assistant") return;
    versionOf(last.id).value;
    const next = last.answers.some(isRunning) ? t.begun : t.ended;
    if (said.peek() !== next && (said.peek() || next === t.begun)) said.value = next;
  });
  return (
    <div class="unseen" role="status" aria-live="polite" data-testid="announcer">
      {conversations.value && said.value}
    </div>
  );
}
