"""One self-contained HTML file from a run folder. Nothing here computes: numbers and pictures are the folder's."""
