"""The figures of the float-against-double document, drawn anew from computed data."""
