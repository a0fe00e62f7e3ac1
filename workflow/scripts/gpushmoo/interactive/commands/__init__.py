"""The commands of the command line: a module for each family, which adds them to the parser.

To add a command, write a function that returns an `Answer` and add it in `add_commands` of its
family. A new family is a module with this function, and its name in `FAMILIES`. These modules
import the rest of the library within functions, because the parser imports all of them.
"""

# In the order of ``--help``.
FAMILIES = ("kernels", "measuring", "comparing", "results", "run")
