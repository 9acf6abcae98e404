// Where messages are written: text, pictures by drop, paste and file, and how full the context is.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { json } from "../../api.ts";
import { Button, IconButton } from "../../components/button.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { texts } from "../../texts.en.ts";
import { answer, stop } from "./answering.ts";
import { type AssistantTurn, isRunning, newId, type UserTurn } from "./model.ts";
import { loaded, shownModel } from "./models.ts";
import { messagesOf } from "./request.ts";
import { append, count, counts, create, current, pathOf, settingsNow, structure, versionOf } from "./threads.ts";
import { editing } from "./turns.tsx";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const MAX_IMAGE_BYTES = 20 * 2 ** 20;
const COUNT_AFTER_MS = 400;
const t = texts.chat;

/** Pictures that go with the next message. */
const images = signal<string[]>([]);

/** The answers that are being made where the user looks. */
function running(): AssistantTurn | undefined {
  const last = current.value ? pathOf(current.value).at(-1) : undefined;
  if (last?.role !== "assistant") return undefined;
  versionOf(last.id).value;
  return last.answers.some(isRunning) ? last : undefined;
}

export function stopShown(): boolean {
  const turn = running();
  if (turn && current.value) stop(current.value, turn);
  return Boolean(turn);
}

export async function addImages(files: Iterable<File>): Promise<void> {
  for (const file of files) {
    if (!IMAGE_TYPES.includes(file.type)) toast(t.notAnImage(file.name), "error");
    else if (file.size > MAX_IMAGE_BYTES) toast(t.tooLarge(file.name, MAX_IMAGE_BYTES / 2 ** 20), "error");
    else images.value = [...images.value, await dataUrl(file)];
  }
}

function dataUrl(file: File): Promise<string> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(reader.error ?? new Error(file.name));
    reader.readAsDataURL(file);
  });
}

export function Composer() {
  structure.value;
  const text = useSignal("");
  const field = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const { model } = settingsNow();
  const busy = running();
  const thread = current.value;

  useLayoutEffect(() => {
    const area = field.current!;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
  }, [text.value]);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
  }, [thread]);

  const send = () => {
    const said = text.value.trim();
    if (busy || !model || (!said && !images.value.length)) return;
    if (images.value.length && shownModel(model)?.capabilities.includes("vision") === false) return toast(t.blind(model), "error");
    const to = current.value ?? create(said || t.image(1));
    const parent = pathOf(to).at(-1)?.id ?? null;
    const turn = append<UserTurn>(to, { id: newId(), conversation: to.conversation.id, parent, at: 0, role: "user", text: said, images: images.value });
    text.value = "";
    images.value = [];
    answer(to, turn.id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !text.value && thread && !busy) {
      const last = pathOf(thread).findLast((turn) => turn.role === "user");
      if (last?.role === "user") {
        event.preventDefault();
        editing.current?.(last);
      }
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    addImages(files).catch(toastError);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        {images.value.length > 0 && (
          <ul class="attached" data-testid="attached">
            {images.value.map((url, at) => (
              <li key={at}>
                <img src={url} alt={t.image(at + 1)} />
                <IconButton icon="close" size={14} label={t.removeImage(at + 1)} onClick={() => (images.value = images.value.filter((_, other) => other !== at))} />
              </li>
            ))}
          </ul>
        )}
        <textarea
          ref={field}
          id="message"
          rows={1}
          value={text.value}
          aria-label={t.message}
          placeholder={t.placeholder(model)}
          data-testid="message"
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
        <div class="composer-foot">
          <input
            ref={file}
            type="file"
            hidden
            multiple
            accept={IMAGE_TYPES.join(",")}
            data-testid="image-file"
            onChange={(event) => {
              addImages([...(event.currentTarget.files ?? [])]).catch(toastError);
              event.currentTarget.value = "";
            }}
          />
          <IconButton icon="attach" label={t.attach} testid="attach" onClick={() => file.current?.click()} />
          <Gauge draft={text.value} />
          {busy ? (
            <Button key="stop" kind="primary" class="round" icon="stop" aria-label={t.stop} title={t.stop} testid="stop" onClick={() => stopShown()} />
          ) : (
            <Button key="send" kind="primary" class="round" icon="send" type="submit" aria-label={t.send} title={t.send} testid="send" disabled={!model || (!text.value.trim() && !images.value.length)} />
          )}
        </div>
      </div>
    </form>
  );
}

/** How much of the context the conversation takes: as the daemon counts it while the user writes. */
function Gauge({ draft }: { draft: string }) {
  structure.value;
  const counted = useSignal<number | null>(null);
  const settings = settingsNow();
  const { model } = settings;
  const path = current.value ? pathOf(current.value) : [];
  const last = path.findLast((turn) => turn.role === "assistant");
  counts.value;
  const answers = last?.role === "assistant" ? last.answers : [];
  const spent = Math.max(0, ...answers.map((each) => (each.promptTokens ?? 0) + each.tokens));
  const known = shownModel(model);
  const capacity = settings.parameters.num_ctx ?? loaded.value[model] ?? known?.contextLength ?? 0;
  const isLoaded = model in loaded.value;

  useEffect(() => {
    counted.value = null;
    if (!draft.trim() || !isLoaded || running()) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      const messages = [...messagesOf(settings, path, 0), { role: "user", content: draft }];
      json<{ input_tokens: number }>("v1/chat/completions/input_tokens", { body: { model, messages }, signal: controller.signal }).then(
        (found) => (counted.value = found.input_tokens),
        () => {},
      );
    }, COUNT_AFTER_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [draft, model, isLoaded]);

  const used = counted.value ?? spent;
  const share = capacity ? Math.min(1, used / capacity) : 0;
  const label = capacity ? t.context(count(used), count(capacity)) : t.contextUnknown(count(used));
  return (
    <div class={share > 0.85 ? "gauge full" : "gauge"} title={label} data-testid="context">
      {capacity > 0 && <meter class="unseen" min={0} max={capacity} value={used} aria-label={label} />}
      <span class="gauge-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
      <span class="gauge-text">{capacity ? t.contextShort(count(used), count(capacity)) : t.contextUnknown(count(used))}</span>
    </div>
  );
}
