"""What pages and terminals say: of a task, of a run."""
