"""A user's own data as a task: arrays from files or memory, ids and labels as one-hot vectors."""
