"""CIFAR-10: its public files, and images placed in larger frames."""
