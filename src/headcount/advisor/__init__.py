"""How many heads a user's data need: trials within a budget, the rule, prices, a page."""
