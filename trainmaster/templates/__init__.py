"""Job scripts and container starts as Jinja templates, and the one place that renders them."""

from trainmaster.templates.render import ControlCharacter, render, shell_words, template_names

__all__ = ["ControlCharacter", "render", "shell_words", "template_names"]
