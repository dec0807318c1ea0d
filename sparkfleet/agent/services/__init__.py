"""Units of recipes: laid down, started, guarded, gone back to, taken off."""
