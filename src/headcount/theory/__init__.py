"""One function per theorem; constructions that return weights and a claimed error; bounds over boxes."""
