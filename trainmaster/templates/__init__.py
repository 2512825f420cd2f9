"""Jinja templates of job scripts and container starts, and the one function that renders them."""

from trainmaster.templates.render import ControlCharacter, render, shell_words, template_names

__all__ = ["ControlCharacter", "render", "shell_words", "template_names"]
