"""Parts of gpushmoo that work without each other: delete the folder of one and the rest goes on.

`registry` says how an extra registers itself.
"""
