"""All protocols side by side on one task: what is run, what comes of it, and the page that shows it."""
