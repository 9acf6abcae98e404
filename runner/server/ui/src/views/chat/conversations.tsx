// The conversations, in the side bar: search, rename, delete, export, import.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "../../components/button.tsx";
import { Confirm, Dialog } from "../../components/dialog.tsx";
import { TextField } from "../../components/field.tsx";
import { Menu } from "../../components/menu.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { href, place } from "../../router.ts";
import { texts } from "../../texts.en.ts";
import { searchTurns } from "./database.ts";
import { type Conversation, textOf, type Turn } from "./model.ts";
import { adopt, conversations, remove, rename, threadOf, type Thread } from "./threads.ts";
import { asJson, asMarkdown, download, fileName, MAX_FILE_BYTES, read } from "./transfer.ts";

const SEARCH_AFTER_MS = 150;
const t = texts.chat;

export function Conversations() {
  const query = useSignal("");
  const found = useSignal<Set<string> | null>(null);
  const renamed = useSignal<Conversation | null>(null);
  const removed = useSignal<Conversation | null>(null);

  useEffect(() => {
    const words = query.value.trim().toLowerCase();
    if (!words) {
      found.value = null;
      return;
    }
    const timer = setTimeout(() => {
      searchTurns((turn) => said(turn).toLowerCase().includes(words)).then((ids) => (found.value = ids), toastError);
    }, SEARCH_AFTER_MS);
    return () => clearTimeout(timer);
  }, [query.value, conversations.value]);

  const words = query.value.trim().toLowerCase();
  const shown = (conversations.value ?? []).filter((each) => !words || each.title.toLowerCase().includes(words) || found.value?.has(each.id));
  return (
    <section class="conversations" aria-label={t.conversations}>
      <a class="button new-chat" href={href("chat")} data-testid="new-chat">
        {t.newChat}
      </a>
      <input type="search" id="search" value={query.value} placeholder={t.search} aria-label={t.search} data-testid="search" onInput={(event) => (query.value = event.currentTarget.value)} />
      <ul data-testid="conversations">
        {shown.map((each) => (
          <li key={each.id} class={place.value.item === each.id ? "here" : undefined}>
            <a href={href("chat", each.id)} aria-current={place.value.item === each.id ? "true" : undefined} title={each.title} data-testid="conversation">
              {each.title}
            </a>
            <Menu
              label={t.more(each.title)}
              testid="conversation-menu"
              entries={[
                { text: t.rename, icon: "edit", testid: "rename", run: () => (renamed.value = each) },
                { text: t.exportJson, icon: "download", testid: "export-json", run: () => void exportOne(each, "json") },
                { text: t.exportMarkdown, icon: "download", testid: "export-markdown", run: () => void exportOne(each, "md") },
                { text: texts.common.remove, icon: "trash", testid: "delete", run: () => (removed.value = each) },
              ]}
            />
          </li>
        ))}
      </ul>
      {conversations.value && !shown.length && <p class="quiet none">{words ? t.noneFound : t.none}</p>}
      <Transfer />
      {renamed.value && <Rename conversation={renamed.value} onClose={() => (renamed.value = null)} />}
      {removed.value && (
        <Confirm
          title={t.removeTitle}
          body={t.removeBody(removed.value.title)}
          yes={texts.common.remove}
          testid="delete-dialog"
          onClose={() => (removed.value = null)}
          onYes={() => {
            void remove(removed.value!.id);
            removed.value = null;
          }}
        />
      )}
    </section>
  );
}

function said(turn: Turn): string {
  return turn.role === "user" ? turn.text : turn.answers.map(textOf).join("\n");
}

function Rename({ conversation, onClose }: { conversation: Conversation; onClose: () => void }) {
  const title = useSignal(conversation.title);
  const submit = () => {
    void rename(conversation.id, title.value);
    onClose();
  };
  return (
    <Dialog
      title={t.rename}
      testid="rename-dialog"
      onClose={onClose}
      onSubmit={submit}
      actions={
        <>
          <Button onClick={onClose}>{texts.common.cancel}</Button>
          <Button kind="primary" type="submit" testid="rename-save">
            {texts.common.save}
          </Button>
        </>
      }
    >
      <TextField label={t.title} value={title.value} maxLength={80} testid="rename-field" onInput={(event) => (title.value = event.currentTarget.value)} />
    </Dialog>
  );
}

function Transfer() {
  const file = useRef<HTMLInputElement>(null);
  return (
    <div class="transfer">
      <input
        ref={file}
        type="file"
        hidden
        multiple
        accept=".json,.md,.markdown,application/json,text/markdown"
        data-testid="import-file"
        onChange={(event) => {
          void importFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
      <Button kind="quiet" class="small" icon="upload" testid="import" onClick={() => file.current?.click()}>
        {t.importFile}
      </Button>
      <Button kind="quiet" class="small" icon="download" testid="export-all" disabled={!conversations.value?.length} onClick={() => void exportAll()}>
        {t.exportAll}
      </Button>
    </div>
  );
}

async function exportOne({ id, title }: Conversation, form: "json" | "md"): Promise<void> {
  const thread = await threadOf(id);
  if (!thread) return;
  if (form === "json") download(fileName(title, "json"), asJson([thread]), "application/json");
  else download(fileName(title, "md"), asMarkdown(thread), "text/markdown");
}

async function exportAll(): Promise<void> {
  const threads = await Promise.all((conversations.value ?? []).map(({ id }) => threadOf(id)));
  download("hearth-conversations.json", asJson(threads.filter((thread): thread is Thread => thread !== null)), "application/json");
}

async function importFiles(files: File[]): Promise<void> {
  let count = 0;
  try {
    for (const file of files) {
      if (file.size > MAX_FILE_BYTES) throw new Error(t.tooLarge(file.name, MAX_FILE_BYTES / 2 ** 20));
      for (const thread of read(file.name, await file.text())) {
        await adopt(thread);
        count += 1;
      }
    }
  } catch (error) {
    toastError(error);
  }
  if (count) toast(t.imported(count));
}
