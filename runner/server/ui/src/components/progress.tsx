// A bar with its figures beside it. value null: under way, nobody knows how far.
export function Progress({ label, value, children }: { label: string; value: number | null; children?: string }) {
  return (
    <div class="progress">
      <progress aria-label={label} max={1} value={value ?? undefined} />
      {children && <small>{children}</small>}
    </div>
  );
}
