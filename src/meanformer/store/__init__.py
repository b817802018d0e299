"""Run folders: what a run leaves on disk, while it goes on and when it is done."""
