"""Two or more runs held against each other: changes, verdicts and a guard."""
