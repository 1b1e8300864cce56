"""The trusted part: certificates and witnesses, verified from the weights up in ball arithmetic.

It imports nothing of the search. The search imports it, and both parse tasks with `tasks.expr`: docs/build.md lists
what is shared, why a bug there could hide, and which tests guard against it.
"""
