"""Facts for the report template, and its rendering."""
