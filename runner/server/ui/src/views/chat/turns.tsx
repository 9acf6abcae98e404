// The shown turns of a conversation, scrolled along with what comes.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Button, IconButton } from "../../components/button.tsx";
import { texts } from "../../texts.en.ts";
import { answer } from "./answering.ts";
import { AnswerView } from "./answer.tsx";
import { type AssistantTurn, isRunning, newId, type Turn, type UserTurn } from "./model.ts";
import { append, childrenOf, choose, pathOf, structure, versionOf, type Thread } from "./threads.ts";

const NEAR_END_PX = 80;
const t = texts.chat;

/** The user turn that is being edited. */
export const editing = { current: null as null | ((turn: UserTurn) => void) };

export function Turns({ thread }: { thread: Thread }) {
  structure.value;
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const away = useSignal(false);
  const edited = useSignal("");
  editing.current = (turn) => (edited.value = turn.id);

  const toEnd = () => scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  useLayoutEffect(() => {
    follows.current = true;
    toEnd();
  }, [thread]);
  useEffect(() => {
    const watcher = new ResizeObserver(() => follows.current && toEnd());
    watcher.observe(content.current!);
    return () => watcher.disconnect();
  }, []);
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = scroller.current!;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    away.value = !follows.current;
  };
  const path = pathOf(thread);
  return (
    <div class="scroller" ref={scroller} onScroll={onScroll} tabindex={0} role="region" aria-label={thread.conversation.title} data-testid="thread">
      <div class="turns" ref={content}>
        {path.map((turn) =>
          turn.role === "user" ? (
            <UserView key={turn.id} thread={thread} turn={turn} edited={edited.value === turn.id} onEdit={(on) => (edited.value = on ? turn.id : "")} />
          ) : (
            <AssistantView key={turn.id} thread={thread} turn={turn} />
          ),
        )}
      </div>
      {away.value && (
        <IconButton
          class="to-end"
          icon="chevronDown"
          label={t.toEnd}
          onClick={() => {
            follows.current = true;
            toEnd();
          }}
        />
      )}
    </div>
  );
}

function AssistantView({ thread, turn }: { thread: Thread; turn: AssistantTurn }) {
  versionOf(turn.id).value;
  const running = turn.answers.some(isRunning);
  return (
    <div class={turn.answers.length > 1 ? "assistant two" : "assistant"}>
      <div class="answers">
        {turn.answers.map((_, lane) => (
          <AnswerView key={lane} thread={thread} turn={turn} lane={lane} />
        ))}
      </div>
      {!running && (
        <div class="turn-actions">
          <Versions thread={thread} turn={turn} />
          <IconButton icon="refresh" size={16} label={t.regenerate} testid="regenerate" onClick={() => turn.parent && answer(thread, turn.parent)} />
        </div>
      )}
    </div>
  );
}

function UserView({ thread, turn, edited, onEdit }: { thread: Thread; turn: UserTurn; edited: boolean; onEdit: (on: boolean) => void }) {
  return (
    <article class="user" aria-label={t.you} data-testid="user-turn">
      {edited ? (
        <Editor thread={thread} turn={turn} onClose={() => onEdit(false)} />
      ) : (
        <>
          {turn.images.length > 0 && (
            <div class="pictures">
              {turn.images.map((url, at) => (
                <img key={at} src={url} alt={t.image(at + 1)} />
              ))}
            </div>
          )}
          {turn.text && <div class="bubble">{turn.text}</div>}
          <div class="turn-actions">
            <Versions thread={thread} turn={turn} />
            <IconButton icon="edit" size={16} label={t.edit} testid="edit" onClick={() => onEdit(true)} />
          </div>
        </>
      )}
    </article>
  );
}

function Editor({ thread, turn, onClose }: { thread: Thread; turn: UserTurn; onClose: () => void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const submit = () => {
    const text = field.current!.value.trim();
    onClose();
    if (!text && !turn.images.length) return;
    const next = append<UserTurn>(thread, { ...turn, id: newId(), text, live: undefined });
    answer(thread, next.id);
  };
  return (
    <form
      class="turn-editor"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          onClose();
        } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          submit();
        }
      }}
    >
      <textarea ref={field} rows={Math.min(12, turn.text.split("\n").length + 1)} aria-label={t.edit} data-testid="edit-field" defaultValue={turn.text} />
      <div class="editor-actions">
        <Button class="small" onClick={onClose}>
          {texts.common.cancel}
        </Button>
        <Button class="small" kind="primary" type="submit" testid="edit-save">
          {t.editSave}
        </Button>
      </div>
    </form>
  );
}

/** The way between a turn and those that were put in its place. */
function Versions({ thread, turn }: { thread: Thread; turn: Turn }) {
  const all = childrenOf(thread, turn.parent);
  if (all.length < 2) return null;
  const at = all.indexOf(turn);
  return (
    <span class="versions" data-testid="versions">
      <IconButton icon="chevronLeft" size={16} label={t.previous} testid="version-previous" disabled={at === 0} onClick={() => choose(thread, all[at - 1]!)} />
      <span>{t.version(at + 1, all.length)}</span>
      <IconButton icon="chevronRight" size={16} label={t.next} testid="version-next" disabled={at === all.length - 1} onClick={() => choose(thread, all[at + 1]!)} />
    </span>
  );
}
