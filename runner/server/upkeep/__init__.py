"""hearth's own routes for the care of the store: check and mend, collect, measure, adopt."""
