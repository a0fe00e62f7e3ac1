"""The document's figures, drawn from a simulated device."""

# Tables of simulated cells that each kind of figure is drawn from.
DRAWN_FROM = {
    "simulated": ("blocks",),
    "same_machine": ("measured",),
    "float3": ("profile", "tables"),
}
