"""Workspaces, projects, templates, configuration policies, and which pools a workspace may use."""
