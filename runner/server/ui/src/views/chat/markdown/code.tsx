// A block of code: its language, a button to copy it, colours once it is complete.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Button } from "../../../components/button.tsx";
import { toastError } from "../../../components/toast.tsx";
import { copyText } from "../../../clipboard.ts";
import { texts } from "../../../texts.en.ts";

const MAX_COLOURED_CHARS = 60_000;
let highlighted: ((code: string, language: string) => ComponentChildren) | null = null;

export function Code({ code, language = "", open = false }: { code: string; language?: string; open?: boolean }) {
  const [ready, setReady] = useState(Boolean(highlighted));
  const wanted = !open && Boolean(language) && code.length <= MAX_COLOURED_CHARS;
  useEffect(() => {
    if (!wanted || highlighted) return;
    import("./highlight.ts").then(
      (module) => {
        highlighted = module.highlighted;
        setReady(true);
      },
      () => {},
    );
  }, [wanted]);
  const coloured = wanted && highlighted;
  const shown = useMemo(() => (coloured ? coloured(code, language.toLowerCase()) : code), [code, language, coloured, ready]);
  return (
    <div class="code" data-testid="code">
      <div class="code-head">
        <span>{language}</span>
        <CopyButton text={code} />
      </div>
      <pre tabindex={0} aria-label={language || texts.chat.code}>
        <code key={coloured ? 1 : 0}>{shown}</code>
      </pre>
    </div>
  );
}

export function CopyButton({ text, label = texts.common.copy }: { text: string; label?: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    try {
      await copyText(text);
      copied.value = true;
      setTimeout(() => (copied.value = false), 1500);
    } catch (error) {
      toastError(error);
    }
  };
  return (
    <Button kind="quiet" class="small" icon={copied.value ? "check" : "copy"} onClick={copy} testid="copy">
      {copied.value ? texts.common.copied : label}
    </Button>
  );
}
