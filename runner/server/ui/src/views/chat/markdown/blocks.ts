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

/** A growing text with what has begun in its last paragraph closed: nothing moves when its end comes. */
export function closed(text: string): string {
  if ((text.match(FENCE)?.length ?? 0) % 2) return text;
  const start = text.lastIndexOf("\n\n") + 1;
  let last = text.slice(start).replace(LINK_BEGUN, "$1$2").replace(MARK_BEGUN, "$1");
  const plain = last.replace(/`[^`]*`/g, "");
  if (plain.includes("`")) return `${text.slice(0, start)}${last}\``;
  const bold = plain.match(/\*\*/g)?.length ?? 0;
  if (bold % 2) last = `${last.replace(/\*$/, "").trimEnd()}**`;
  else if ((plain.replaceAll("**", "").match(/\*(?=\S)|(?<=\S)\*/g)?.length ?? 0) % 2) last = `${last.trimEnd()}*`;
  return text.slice(0, start) + last;
}

/** The blocks of a growing text. */
export class Blocks {
  /** Those that nothing can change any more. */
  readonly settled: Token[] = [];
  private read = 0;
  private text = "";

  /** The blocks after those that are settled. text: all of it, longer than the last time; live: it
   * still grows. */
  rest(text: string, live = false): Token[] {
    if (!text.startsWith(this.text.slice(0, this.read)) || text.length < this.read) {
      this.settled.length = 0;
      this.read = 0;
    }
    this.text = text;
    const unread = text.slice(this.read);
    const tokens: Token[] = (/\$|\\[([]/.test(unread) ? mathematical : plain).lexer(live ? closed(unread) : unread);
    const last = tokens.findLastIndex((token) => token.type !== "space");
    const head = tokens.slice(0, Math.max(0, last));
    const raw = head.map((token) => token.raw).join("");
    if (!head.length || !text.startsWith(raw, this.read)) return tokens;
    this.settled.push(...head);
    this.read += raw.length;
    return tokens.slice(last);
  }
}
