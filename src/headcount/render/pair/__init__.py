"""The picture and the page of a colliding pair."""
