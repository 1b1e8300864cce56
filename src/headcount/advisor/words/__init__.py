"""The sentences of an advice: the answer and its reasons, the witness, and the configuration."""
