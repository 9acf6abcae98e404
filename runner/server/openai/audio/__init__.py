"""/v1/audio: speech to text, and text to speech."""
