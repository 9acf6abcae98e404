// Answers as elements. No text becomes markup: HTML in it is shown as it is written, pictures are
// named and not fetched, and links lead to web pages and mail only.
import type { Token, Tokens } from "marked";
import { Component, Fragment, h, type VNode, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Blocks } from "./blocks.ts";
import { Code } from "./code.tsx";

type SetFormula = (tex: string, display: boolean) => ComponentChildren;
let formula: SetFormula | null = null;
let loading: Promise<void> | null = null;

/** The level of the heading before: readers of screens count on none being left out. */
interface Level {
  last: number;
}

const FIRST_LEVEL = 3; // the page has its own h1, and an h2 for each answer

/** Blocks of an answer that lie in one element: what is laid out again at each step are the last
 * element and the list of elements, and not the list of all blocks. */
const PART = 32;

/** Shows what it was given, until that was settled: from then on it is given nothing, and nobody looks
 * into it. To keep elements and give them again would do as well, but each element that is kept
 * holds on to the whole tree in which it was first shown. */
class Settling extends Component<{ settled: boolean; children?: ComponentChildren }> {
  override shouldComponentUpdate(): boolean {
    return !this.props.settled;
  }

  render(): ComponentChildren {
    return this.props.children;
  }
}

/** live: the text still grows. */
export function Markdown({ text, live = false }: { text: string; live?: boolean }) {
  const state = useRef<{ blocks: Blocks; beginning: number; settled: number; level: Level } | null>(null);
  state.current ??= { blocks: new Blocks(), beginning: 0, settled: 0, level: { last: FIRST_LEVEL - 1 } };
  const kept = state.current;
  // Before there is a formula: what follows it would move when it is set.
  useEffect(() => void (live && loadFormulas().catch(() => {})), [live]);
  const { restarted, settled, rest } = kept.blocks.next(text, live);
  if (restarted) {
    kept.beginning += 1;
    kept.settled = 0;
    kept.level.last = FIRST_LEVEL - 1;
  }
  const before = kept.settled;
  const shown = settled.map((token) => block(token, false, kept.level));
  const ahead = { ...kept.level };
  kept.settled += settled.length;
  shown.push(...rest.map((token, at) => block(token, live && at === rest.length - 1, ahead)));
  return (
    <div key={kept.beginning} class="markdown">
      {parts(before, kept.settled, shown)}
    </div>
  );
}

/** The elements of all parts. before: how many blocks need not be looked at again; settled: how many
 * need not be from now on; shown: the blocks that follow those before. */
function parts(before: number, settled: number, shown: ComponentChildren[]): VNode[] {
  return Array.from({ length: Math.ceil((before + shown.length) / PART) }, (_, number) => {
    const first = number * PART;
    const end = Math.min(first + PART, before + shown.length);
    const blocks = (): VNode[] =>
      Array.from({ length: end - first }, (_, at) => (
        <Settling key={at} settled={first + at < settled}>
          {shown[first + at - before]}
        </Settling>
      ));
    return (
      <Settling key={number} settled={first + PART <= settled}>
        {first + PART > before && <div class="part">{blocks()}</div>}
      </Settling>
    );
  });
}

function block(token: Token, open: boolean, level: Level = { last: FIRST_LEVEL }): ComponentChildren {
  const it = token as Tokens.Generic;
  switch (it.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      level.last = Math.min(6, it.depth + FIRST_LEVEL - 1, level.last + 1);
      return h(`h${level.last}`, null, inline(it.tokens));
    case "code":
      return <Code code={it.text.replace(/\n$/, "")} language={(it.lang ?? "").split(/\s/)[0]} open={open} />;
    case "blockquote":
      return <blockquote>{children(it, open)}</blockquote>;
    case "hr":
      return <hr />;
    case "list":
      return list(it as Tokens.List, open);
    case "table":
      return table(it as Tokens.Table);
    case "mathBlock":
      return <Formula tex={it.text} display />;
    case "html":
      return <p class="as-is">{it.raw.trim()}</p>;
    case "text":
      return inline(it.tokens ?? [token]);
    case "checkbox":
      return span(it);
    default:
      return <p>{it.tokens ? inline(it.tokens) : it.raw}</p>;
  }
}

function children(token: Tokens.Generic, open = false): ComponentChildren {
  const tokens = token.tokens ?? [];
  return tokens.map((each, at) => <Fragment key={at}>{block(each, open && at === tokens.length - 1)}</Fragment>);
}

function list({ ordered, start, items }: Tokens.List, open: boolean): ComponentChildren {
  const shown = items.map((item, at) => (
    <li key={at} class={item.task ? "task" : undefined}>
      {children(item, open && at === items.length - 1)}
    </li>
  ));
  return ordered ? <ol start={start === 1 || start === "" ? undefined : start}>{shown}</ol> : <ul>{shown}</ul>;
}

function table({ header, rows }: Tokens.Table): ComponentChildren {
  const align = (cell: Tokens.TableCell) => ({ textAlign: cell.align ?? undefined });
  return (
    <div class="table" tabindex={0} role="region" aria-label={header.map((cell) => cell.text).join(", ")}>
      <table style={{ minWidth: `${header.length * 5}rem` }}>
        <thead>
          <tr>
            {header.map((cell, at) => (
              <th key={at} scope="col" style={align(cell)}>
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, column) => (
                <td key={column} style={align(cell)}>
                  {inline(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, at) => <Fragment key={at}>{span(token as Tokens.Generic)}</Fragment>);
}

function span(it: Tokens.Generic): ComponentChildren {
  switch (it.type) {
    case "strong":
      return <strong>{inline(it.tokens)}</strong>;
    case "em":
      return <em>{inline(it.tokens)}</em>;
    case "del":
      return <del>{inline(it.tokens)}</del>;
    case "codespan":
      return <code>{it.text}</code>;
    case "br":
      return <br />;
    case "checkbox":
      return <input type="checkbox" checked={it.checked} disabled aria-label={it.checked ? "☑" : "☐"} />;
    case "link":
      return <Link href={it.href}>{inline(it.tokens)}</Link>;
    case "image":
      return <Link href={it.href}>🖼 {decoded(it.text || it.href)}</Link>;
    case "math":
      return <Formula tex={it.text} />;
    case "mathDisplay":
      return <Formula tex={it.text} display />;
    case "html":
      return it.raw;
    case "escape":
      return it.text;
    default:
      return it.tokens ? inline(it.tokens) : decoded(it.text ?? it.raw);
  }
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

function decoded(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|apos|nbsp);/g, (_, name: string) => ENTITIES[name] ?? "");
}

/** Where a link may lead: web pages and mail, by an address that says so itself. */
export function safeAddress(href: string): string | null {
  try {
    const url = new URL(decoded(href));
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  const address = safeAddress(href);
  if (!address) return <span>{children}</span>;
  return (
    <a href={address} title={address} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function Formula({ tex, display = false }: { tex: string; display?: boolean }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!formula) void loadFormulas().then(() => redraw(1)).catch(() => {});
  }, []);
  const shown = formula ? formula(tex, display) : <code>{tex}</code>;
  return display ? <div class="formula">{shown}</div> : <>{shown}</>;
}

function loadFormulas(): Promise<void> {
  return (loading ??= import("./math.ts").then((module) => void (formula = module.formula)));
}
