"""The verbs: one module each, imported when the verb is used. Its `command` function is the verb.

The table is what `hearth --help` prints, so that help imports no verb.
"""

from __future__ import annotations

VERBS = {
    "run": "Chat with a model, or answer one prompt",
    "list": "List the installed models",
    "show": "Show what a model is made of",
    "pull": "Get a model from a registry, Hugging Face or a URL",
    "push": "Send a model to a registry",
    "create": "Make a model from a Modelfile",
    "check": "Check a Modelfile without building it",
    "render": "Print the prompt that a conversation becomes",
    "parameters": "List the parameters of models and requests",
    "cp": "Give a model a second name",
    "rm": "Remove models",
    "ps": "List the models in memory",
    "stop": "Take a model out of memory",
    "login": "Keep a name and password for a registry",
    "logout": "Forget the name and password for a registry",
    "key": "Make, list and remove API keys",
    "import": "Take models of Ollama, LM Studio or Hugging Face, without a copy",
    "du": "Show what the models take on the disk",
    "gc": "Remove files that no model needs",
    "fsck": "Check the store, and mend what is damaged",
    "serve": "Start the daemon in this terminal",
    "service": "Start the daemon at login, by systemd or launchd",
    "bench": "Measure a model on this machine",
    "eval": "Measure how well models predict a text",
    "env": "Print the settings and the addresses for other programs",
}

ALIASES = {"ls": "list", "start": "serve", "prune": "gc"}

MODULES = {"import": "import_models"}  # the others are named like their verb
