// Light or dark: as the system has it, or as the user chose in this browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEPT = "hearth.theme";
const kept = localStorage.getItem(KEPT);

export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEPT);
  } else {
    document.documentElement.dataset.theme = chosen;
    localStorage.setItem(KEPT, chosen);
  }
});
