"""How wrong a trained model is at worst: bounds proved over boxes, and the worst error found."""
