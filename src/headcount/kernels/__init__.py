"""The one hot operation, tokens → pooled hidden state per head, and the training step around it."""
