"""Real data, read and prepared: MS MARCO and CIFAR-10."""
