"""The vocabulary that all packages share: element types, spaces of cells, schemas, words."""
