// Asks again and again while the view is there and the page is seen.
import { useSignal } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { ApiError, keysGiven } from "./api.ts";

export interface Polled<T> {
  value: T | null;
  error: ApiError | null;
  /** Ask now. */
  again: () => void;
}

/** What ask gives, asked for every ms; 0: once, and when told. A key that was given asks anew. */
export function usePolled<T>(ask: () => Promise<T>, ms: number): Polled<T> {
  const value = useSignal<T | null>(null);
  const error = useSignal<ApiError | null>(null);
  const round = useSignal(0);
  const latest = useRef(ask);
  latest.current = ask;
  const given = keysGiven.value;
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const next = () => {
      if (!ended && ms > 0) timer = window.setTimeout(run, ms);
    };
    const run = async () => {
      if (document.hidden) return next();
      try {
        const found = await latest.current();
        if (ended) return;
        value.value = found;
        error.value = null;
      } catch (fault) {
        if (ended) return;
        error.value = fault instanceof ApiError ? fault : new ApiError(0, String(fault));
        if (error.value.status === 401 || error.value.status === 403) return;
      }
      next();
    };
    run();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [ms, given, round.value]);
  const again = useCallback(() => (round.value += 1), []);
  return { value: value.value, error: error.value, again };
}
