// A text area with numbers, and with underlines behind the places that findings are about.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { texts } from "../../texts.en.ts";

const words = texts.models.create;

export interface Finding {
  message: string;
  line: number | null;
  column: number | null;
}

type Marked = Finding & { kind: "error" | "note" };

interface Shown {
  label: string;
  text: string;
  findings: Marked[];
  /** One line about all of it. */
  state: string;
  onInput: (text: string) => void;
}

export function Editor({ label, text, findings, state, onInput }: Shown) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const behind = useRef<HTMLPreElement>(null);
  const numbers = useRef<HTMLDivElement>(null);
  const follow = () => {
    if (!area.current || !behind.current || !numbers.current) return;
    behind.current.scrollTop = numbers.current.scrollTop = area.current.scrollTop;
    behind.current.scrollLeft = area.current.scrollLeft;
  };
  useEffect(follow);
  const rows = text.split("\n");
  const worst = (line: number) => {
    const here = findings.filter((each) => each.line === line);
    return here.find((each) => each.kind === "error") ?? here[0];
  };
  const goTo = ({ line, column }: Finding) => {
    if (!area.current || line === null) return;
    const start = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0) + (column ?? 1) - 1;
    area.current.focus();
    area.current.setSelectionRange(start, start - (column ?? 1) + 1 + (rows[line - 1]?.length ?? 0));
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="editor">
        <div class="numbers" ref={numbers} aria-hidden="true">
          {rows.map((_, index) => (
            <span key={index} class={worst(index + 1)?.kind}>
              {index + 1}
            </span>
          ))}
        </div>
        <div class="sheet">
          <pre ref={behind} aria-hidden="true">
            {rows.map((row, index) => marked(row, index, worst(index + 1)))}
          </pre>
          <textarea
            ref={area}
            id={id}
            value={text}
            spellcheck={false}
            autocapitalize="off"
            aria-describedby={`${id}-findings`}
            aria-invalid={findings.some((each) => each.kind === "error")}
            onInput={(event) => onInput(event.currentTarget.value)}
            onScroll={follow}
            data-testid="create-modelfile"
          />
        </div>
      </div>
      <div id={`${id}-findings`} role="status" data-testid="findings">
        <small>{state}</small>
        <ul class="findings">
          {findings.map((each, index) => (
            <li key={index} class={each.kind} data-testid={`finding-${each.kind}`} data-line={each.line}>
              <button type="button" onClick={() => goTo(each)}>
                {words.at(each.line, each.message)}
              </button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function marked(row: string, index: number, finding?: Marked): ComponentChildren {
  const from = (finding?.column ?? 1) - 1;
  if (!finding) return `${row}\n`;
  return (
    <span key={index}>
      {row.slice(0, from)}
      <mark class={finding.kind}>{row.slice(from) || " "}</mark>
      {"\n"}
    </span>
  );
}
