"""Training stacks of encoders: settings, the trainer, what is measured."""
