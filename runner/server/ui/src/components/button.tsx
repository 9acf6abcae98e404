// Buttons, and links that look like them.
import type { ComponentChildren, JSX } from "preact";
import { Icon, type IconName } from "./icon.tsx";

type Native = Omit<JSX.IntrinsicElements["button"], "icon">;

export interface ButtonProps extends Native {
  kind?: "plain" | "primary" | "danger" | "quiet";
  icon?: IconName;
  testid?: string;
  children?: ComponentChildren;
}

export function Button({ kind = "plain", icon, testid, children, class: more, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} class={`button ${kind} ${more ?? ""}`} data-testid={testid}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** A button that shows an icon only; its label is read out and shown on hover. */
export function IconButton({ icon, label, testid, class: more, size, ...rest }: Native & { icon: IconName; label: string; testid?: string; size?: number }) {
  return (
    <button type="button" title={label} aria-label={label} {...rest} class={`icon-button ${more ?? ""}`} data-testid={testid}>
      <Icon name={icon} size={size} />
    </button>
  );
}
