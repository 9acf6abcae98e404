"""hearth's own routes that maintain the store: fsck, gc, du, import."""
