// Makes built/ from src/: hashed scripts and styles, and the index.html that names them.
// The same sources and the same node_modules give the same bytes.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { build, context, transform } from "esbuild";

const out = process.argv.find((word) => word.startsWith("--out="))?.slice(6) ?? "built";

const options = {
  entryPoints: ["src/main.tsx"],
  outdir: out,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["chrome123", "firefox121", "safari17.5"],
  minify: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  logLevel: "warning",
  plugins: [{ name: "index", setup: (building) => building.onEnd(writeIndex) }],
};

async function writeIndex({ errors, metafile }) {
  if (errors.length) return;
  const [script, { cssBundle }] = Object.entries(metafile.outputs).find(([, made]) => made.entryPoint === "src/main.tsx");
  // What the script imports at once is asked for with it, and not after it has come.
  const needed = metafile.outputs[script].imports.filter(({ kind }) => kind === "import-statement").map(({ path }) => basename(path));
  const icon = await readFile("src/icon.svg");
  const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
  const { code } = await transform(await readFile("src/texts.en.ts", "utf8"), { loader: "ts", format: "esm" });
  const { texts } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const parts = {
    script: `ui/${basename(script)}`,
    style: `ui/${basename(cssBundle)}`,
    needed: needed.map((name) => `<link rel="modulepreload" href="ui/${name}">`).join("\n    "),
    icon: `ui/${iconName}`,
    title: texts.name,
    noscript: texts.noScript,
  };
  const page = (await readFile("src/index.html", "utf8")).replace(/\{(\w+)\}/g, (_, name) => parts[name]);
  await writeFile(`${out}/index.html`, page);
  await writeFile(`${out}/${iconName}`, icon);
}

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
if (process.argv.includes("--watch")) await (await context(options)).watch();
else await build(options);
