// Code in colours: highlight.js's core with the languages that models mostly write. Loaded on demand.
import { h, type ComponentChildren } from "preact";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import lua from "highlight.js/lib/languages/lua";
import makefile from "highlight.js/lib/languages/makefile";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import r from "highlight.js/lib/languages/r";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = { bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, lua, makefile, php, python, r, ruby, rust, sql, swift, typescript, xml, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

interface Part {
  scope?: string;
  children: (Part | string)[];
}

/** The code as elements; the code itself in a language that is not known. */
export function highlighted(code: string, language: string): ComponentChildren {
  if (!hljs.getLanguage(language)) return code;
  const found = hljs.highlight(code, { language, ignoreIllegals: true });
  const { rootNode } = found._emitter as unknown as { rootNode: Part };
  return rootNode.children.map(element);
}

function element(part: Part | string): ComponentChildren {
  if (typeof part === "string") return part;
  return h("span", { class: `code-${(part.scope ?? "").split(".")[0]}` }, part.children.map(element));
}
