// One model's answer: its reasoning, its text, the tools that it called, what it took.
import { useMemo } from "preact/hooks";
import { Button, IconButton } from "../../components/button.tsx";
import { Icon } from "../../components/icon.tsx";
import { texts } from "../../texts.en.ts";
import { decide, goOn } from "./answering.ts";
import { Code, CopyButton } from "./markdown/code.tsx";
import { Markdown } from "./markdown/markdown.tsx";
import { type Answer, type AssistantTurn, type Call, isRunning, type Round, textOf } from "./model.ts";
import { count, counts, figure, keepOnly, versionOf, type Thread } from "./threads.ts";

const t = texts.chat;

export interface AnswerProps {
  thread: Thread;
  turn: AssistantTurn;
  lane: number;
}

export function AnswerView({ thread, turn, lane }: AnswerProps) {
  versionOf(turn.id).value;
  const answer = turn.answers[lane]!;
  const running = isRunning(answer);
  return (
    <article class="answer" aria-label={t.answerOf(answer.model)} aria-busy={running} data-testid="answer" data-state={answer.state}>
      <header>
        <h2 class="who">{answer.model}</h2>
        <span class="answer-progress">{running && <Progress answer={answer} />}</span>
        {turn.answers.length > 1 && <IconButton icon="check" size={15} label={t.keepThis} testid="keep-answer" disabled={turn.answers.some(isRunning)} onClick={() => keepOnly(thread, turn, lane)} />}
      </header>
      {answer.rounds.map((round, at) => (
        <RoundView key={at} round={round} at={at} thread={thread} turn={turn} lane={lane} live={running && at === answer.rounds.length - 1} />
      ))}
      {!running && <Status thread={thread} turn={turn} lane={lane} />}
    </article>
  );
}

function RoundView({ round, live, thread, turn, lane }: AnswerProps & { round: Round; at: number; live: boolean }) {
  const answer = turn.answers[lane]!;
  return (
    <>
      {round.reasoning && <Reasoning round={round} live={live && !round.text} />}
      {round.text && (answer.json ? <Code code={round.text} language="json" open={live} /> : <Markdown text={round.text} live={live} />)}
      {round.calls.map((call) => (
        <CallView key={call.id} call={call} made={answer.state !== "streaming"} onDecide={(allowed) => void decide(thread, turn, lane, call, allowed)} />
      ))}
    </>
  );
}

function Reasoning({ round, live }: { round: Round; live: boolean }) {
  return (
    <details class="reasoning" data-testid="reasoning">
      <summary>{live ? t.thinking : t.thought(((round.reasoningMs ?? 0) / 1000).toFixed(1))}</summary>
      <Markdown text={round.reasoning} live={live} />
    </details>
  );
}

function CallView({ call, made, onDecide }: { call: Call; made: boolean; onDecide: (allowed: boolean) => void }) {
  const asks = made && call.state === "asking";
  return (
    <div class={`call ${call.state}`} role="group" aria-label={`${t.toolCall}: ${call.name}`} data-testid="tool-call" data-state={call.state}>
      <details open={asks}>
        <summary>
          <Icon name="tool" size={15} />
          <span>{asks ? t.toolAsk(call.name) : call.name}</span>
          <span class="call-state">{made || call.state !== "asking" ? t.toolStates[call.state] : ""}</span>
        </summary>
        <h3>{t.arguments}</h3>
        <pre tabindex={0} data-testid="tool-arguments">{pretty(call.arguments)}</pre>
        {call.result !== undefined && (
          <>
            <h3>{t.result}</h3>
            <pre tabindex={0} data-testid="tool-result">{call.result}</pre>
          </>
        )}
      </details>
      {asks && (
        <div class="call-ask">
          <Button kind="primary" testid="tool-allow" onClick={() => onDecide(true)}>
            {t.allow}
          </Button>
          <Button testid="tool-refuse" onClick={() => onDecide(false)}>
            {t.refuse}
          </Button>
        </div>
      )}
    </div>
  );
}

function pretty(given: string): string {
  try {
    return JSON.stringify(JSON.parse(given), null, 2);
  } catch {
    return given;
  }
}

/** What is going on, above the answer: below it would move with each line. */
function Progress({ answer }: { answer: Answer }) {
  const { state } = answer;
  if (state === "reconnecting") {
    return (
      <span class="pulse" role="status" data-testid="reconnecting">
        {t.reconnecting}
      </span>
    );
  }
  if (state === "waiting") return <span class="pulse">{t.waiting}</span>;
  return state === "streaming" ? <LiveTokens answer={answer} /> : null;
}

function LiveTokens({ answer }: { answer: Answer }) {
  const shown = useMemo(() => t.tokensSoFar(count(answer.tokens)), [counts.value]);
  return <span data-testid="live-tokens">{shown}</span>;
}

/** How an answer ended, and what it took. */
function Status({ thread, turn, lane }: AnswerProps) {
  const answer = turn.answers[lane]!;
  const { state, stats } = answer;
  const open = ["stopped", "lost", "failed"].includes(state) || answer.reason === "length";
  const took = stats && [t.stats(count(stats.completion)), stats.perSecond && t.perSecond(figure(stats.perSecond)), stats.cached && t.cached(count(stats.cached), count(stats.prompt)), `${figure(stats.ms / 1000)} s`];
  return (
    <footer class="status" data-testid="status">
      {answer.error && (
        <span class="error" role="alert" data-testid="answer-error">
          <Icon name="warning" size={15} /> {answer.error}
        </span>
      )}
      {state === "stopped" && <span>{t.stopped}</span>}
      {state === "done" && answer.reason === "length" && <span>{t.cut}</span>}
      {took && <span data-testid="stats">{took.filter(Boolean).join(" · ")}</span>}
      <span class="status-actions">
        {open && !answer.rounds.at(-1)!.calls.length && (
          <Button kind="quiet" class="small" icon="chevronRight" testid="continue" onClick={() => goOn(thread, turn, lane)}>
            {t.goOn}
          </Button>
        )}
        {textOf(answer) && <CopyButton text={textOf(answer)} />}
      </span>
    </footer>
  );
}
