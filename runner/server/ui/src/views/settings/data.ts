import { json } from "../../api.ts";

export interface Setting {
  name: string;
  variable: string;
  value: string;
  source: string | null;
  overrides: string[];
  doc: string;
}

export interface DaemonSettings {
  settings: Setting[];
  folders: Record<string, string>;
  file: string;
}

export interface Key {
  name: string;
  scopes: string[];
  created_at: string;
}

export const daemonSettings = () => json<DaemonSettings>("api/settings");
export const apiKeys = async () => (await json<{ keys: Key[] }>("api/keys")).keys;
