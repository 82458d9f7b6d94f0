"""What every room may import: names, paths, requests, errors, moments, texts, files. Nothing here knows of policies."""
