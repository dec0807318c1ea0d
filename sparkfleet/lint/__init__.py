"""The closed world: a recipe is checked against what its engine really accepts, and against what cost people days.

``check`` has the one way in for the command line and for a deploy; rules are small functions, a module a family.
Pure: recipes, knowledge and the catalog are read, no host is asked.
"""
