"""What an advice says, beside the template of its page: the answer, its witness, from advice to code."""
