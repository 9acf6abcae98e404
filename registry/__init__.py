"""The store of models and the ways in and out of it. Imports none of our other packages."""
