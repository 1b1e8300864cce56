"""The irreducible error of a layer, enclosed: pairs of inputs bounded by linear programs."""
