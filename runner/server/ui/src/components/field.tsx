// Labelled fields. The label is a real one, and so are hint and error for who cannot see them.
import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface Around {
  label: string;
  hint?: ComponentChildren;
  error?: string;
  /** For eyes the label is clear without being shown. */
  hideLabel?: boolean;
  testid?: string;
}

function described(id: string, { hint, error }: Around): string | undefined {
  return hint || error ? `${id}-more` : undefined;
}

function Frame({ id, around, children }: { id: string; around: Around; children: ComponentChildren }) {
  const { label, hint, error, hideLabel } = around;
  return (
    <div class={error ? "field wrong" : "field"}>
      <label for={id} class={hideLabel ? "unseen" : undefined}>
        {label}
      </label>
      {children}
      {(hint || error) && (
        <small id={`${id}-more`} role={error ? "alert" : undefined}>
          {error || hint}
        </small>
      )}
    </div>
  );
}

export function TextField({ label, hint, error, hideLabel, testid, ...rest }: Around & JSX.IntrinsicElements["input"]) {
  const id = useId();
  const around = { label, hint, error, hideLabel };
  return (
    <Frame id={id} around={around}>
      <input {...rest} id={id} data-testid={testid} aria-describedby={described(id, around)} aria-invalid={Boolean(error)} />
    </Frame>
  );
}

export function TextArea({ label, hint, error, hideLabel, testid, ...rest }: Around & JSX.IntrinsicElements["textarea"]) {
  const id = useId();
  const around = { label, hint, error, hideLabel };
  return (
    <Frame id={id} around={around}>
      <textarea {...rest} id={id} data-testid={testid} aria-describedby={described(id, around)} aria-invalid={Boolean(error)} />
    </Frame>
  );
}

export function Select({ label, hint, error, hideLabel, testid, children, ...rest }: Around & JSX.IntrinsicElements["select"]) {
  const id = useId();
  const around = { label, hint, error, hideLabel };
  return (
    <Frame id={id} around={around}>
      <select {...rest} id={id} data-testid={testid} aria-describedby={described(id, around)}>
        {children}
      </select>
    </Frame>
  );
}

export function Checkbox({ label, hint, testid, ...rest }: Omit<Around, "error" | "hideLabel"> & Omit<JSX.IntrinsicElements["input"], "type" | "role">) {
  const id = useId();
  return (
    <div class="check">
      <input {...rest} type="checkbox" id={id} data-testid={testid} aria-describedby={hint ? `${id}-more` : undefined} />
      <label for={id}>{label}</label>
      {hint && <small id={`${id}-more`}>{hint}</small>}
    </div>
  );
}
