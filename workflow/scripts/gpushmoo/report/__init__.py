"""Write the facts for the report's template, and render the report."""
