"""What brings models in and keeps them: pull, push, create, import, fsck, gc."""
