"""The process around one speech model: Whisper, which hears, or a voice of Piper, which speaks."""
