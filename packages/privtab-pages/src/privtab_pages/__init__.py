"""Pages for people: policies as Markdown and as HTML without scripts."""
