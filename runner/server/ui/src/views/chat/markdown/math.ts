// Formulas as MathML, which browsers set by themselves. Loaded on demand.
import { h, type ComponentChildren } from "preact";
import temml from "temml";

const ELEMENTS = new Set("math merror mfrac mi mlabeledtr mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none semantics".split(" "));
const MAX_SIZE_EM = 40;
const MAX_EXPANSIONS = 300;

interface MathPart {
  type?: string;
  text?: string;
  attributes?: Record<string, string>;
  style?: Record<string, string>;
  classes?: string[];
  children?: MathPart[];
}

/** The formula as elements. What is no formula is shown in red, as it was written. */
export function formula(tex: string, display: boolean): ComponentChildren {
  const options = { displayMode: display, trust: false, annotate: false, strict: false, maxSize: [MAX_SIZE_EM, MAX_SIZE_EM] as [number, number], maxExpand: MAX_EXPANSIONS };
  return element(temml.__renderToMathMLTree(tex, options) as MathPart);
}

function element(part: MathPart): ComponentChildren {
  const children = part.children?.map(element);
  if (part.text !== undefined && !part.type) return part.text;
  if (!part.type || !ELEMENTS.has(part.type)) return children?.length ? children : part.text;
  const kept = Object.entries(part.attributes ?? {}).filter(([name]) => !/^(on|href|src|style|class|id)/i.test(name));
  const style = Object.fromEntries(Object.entries(part.style ?? {}).filter(([, value]) => !/url|\\/i.test(String(value))));
  return h(part.type, { ...Object.fromEntries(kept), style, class: part.classes?.join(" ") || undefined }, children);
}
