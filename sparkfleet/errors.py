"""What a user can cause, said in one short paragraph; everything else is a defect and may traceback."""


class UserError(Exception):
    """Names the thing, what was expected, what was found and the remedy, in words for a person."""
