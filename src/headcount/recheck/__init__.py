"""The trusted part: certificates, verified from the weights up in ball arithmetic. Nothing of the search is here."""
