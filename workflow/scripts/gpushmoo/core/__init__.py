"""Define what all packages share: element types, spaces of cells, schemas, and number formats."""
