// Markdown as it comes: what is complete is read once, only the last block again at each step.
import { Marked, type Token, type TokenizerExtension } from "marked";

function math(name: string, level: "block" | "inline", start: RegExp, rule: RegExp): TokenizerExtension {
  return {
    name,
    level,
    start: (source) => {
      const at = source.search(start);
      return at < 0 ? undefined : at;
    },
    tokenizer: (source) => {
      const found = rule.exec(source);
      return found ? { type: name, raw: found[0], text: (found[1] ?? found[2] ?? "").trim() } : undefined;
    },
  };
}

const plain = new Marked({ gfm: true });
// Extensions look through all that follows at each piece of text, which long paragraphs feel.
const mathematical = new Marked({
  gfm: true,
  extensions: [
    math("mathBlock", "block", /\$\$|\\\[/, /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n+|$)/),
    math("mathDisplay", "inline", /\$\$|\\\[/, /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])/),
    // A dollar that stands for money is followed by a blank, or closed by one, or before a figure.
    math("math", "inline", /\$|\\\(/, /^(?:\$(?!\s)([^$\n]*?[^\s$\\])\$(?!\d)|\\\(([\s\S]+?)\\\))/),
  ].map((extension) => extension as TokenizerExtension & { renderer: () => string }),
});

const FENCE = /^ {0,3}(```|~~~)/gm;
const LINK_BEGUN = /(^|\s)!?\[([^\][\n]{2,})(?:\](?:\([^()\s]*)?)?$/;
const MARK_BEGUN = /(^|\s)(\*{1,3}|_{1,3}|`)$/;
const TABLE_AT_END = /(?:^|\n)((?: {0,3}\|[^\n]*\n)*)(?: {0,3}\|[^\n]*)?$/;

/** What ends in a table without the row that is not complete, and without its head until the row that
 * makes it one: columns are set when their alignment is known. */
function withoutOpenRow(text: string): string {
  const found = TABLE_AT_END.exec(text)!;
  const rows = found[1]!;
  const isTable = rows.indexOf("\n") < rows.lastIndexOf("\n");
  return text.slice(0, found.index) + (isTable ? found[0].slice(0, found[0].indexOf(rows) + rows.length) : "");
}

/** A growing text with what has begun in its last paragraph closed: nothing moves when its end comes. */
export function closed(text: string): string {
  if ((text.match(FENCE)?.length ?? 0) % 2) return text;
  const start = text.lastIndexOf("\n\n") + 1;
  const end = text.slice(start);
  let last = (/(^|\n) {0,3}\|/.test(end) ? withoutOpenRow(end) : end).replace(LINK_BEGUN, "$1$2").replace(MARK_BEGUN, "$1");
  const plain = last.replace(/`[^`]*`/g, "");
  if (plain.includes("`")) return `${text.slice(0, start)}${last}\``;
  const bold = plain.match(/\*\*/g)?.length ?? 0;
  if (bold % 2) last = `${last.replace(/\*$/, "").trimEnd()}**`;
  else if ((plain.replaceAll("**", "").match(/\*(?=\S)|(?<=\S)\*/g)?.length ?? 0) % 2) last = `${last.trimEnd()}*`;
  return text.slice(0, start) + last;
}

/** What was read of a growing text: the blocks that nothing can change any more and were not given
 * before, and those after them. restarted: what was given before is no longer part of the text. */
export interface Read {
  restarted: boolean;
  settled: Token[];
  rest: Token[];
}

const MATHEMATICAL = /\$|\\[([]/;

/** Reads a growing text. */
export class Blocks {
  private text = "";
  /** A string of its own: parts of a string keep the whole of it in memory, and each block would keep
   * all of the text as it was. */
  private unread = "";

  /** text: all of it, longer than the last time; live: it still grows. */
  next(text: string, live = false): Read {
    const restarted = !text.startsWith(this.text);
    this.unread = restarted ? text : this.unread + text.slice(this.text.length);
    this.text = text;
    const { unread } = this;
    const tokens: Token[] = (MATHEMATICAL.test(unread) ? mathematical : plain).lexer(live ? closed(unread) : unread);
    const last = tokens.findLastIndex((token) => token.type !== "space");
    const settled = tokens.slice(0, Math.max(0, last));
    const raw = settled.map((token) => token.raw).join("");
    if (!settled.length || !unread.startsWith(raw)) return { restarted, settled: [], rest: tokens };
    this.unread = unread.slice(raw.length);
    return { restarted, settled, rest: tokens.slice(last) };
  }
}
