"""Pages for people: what a policy says, as Markdown and as HTML without scripts."""
