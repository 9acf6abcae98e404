"""Conversations: items that are kept on the daemon, for responses that go on from them."""
